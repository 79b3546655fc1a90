"""What every adapter of the log port does, the same in memory and on NATS JetStream."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.hosts import DrainCompleted
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import RunStopRequested
from tenure.events.reports import CheckpointReported
from tenure.log.port import ATOMIC_MAX, Appended, BeyondEnd, Conflict, Expect, Feed, Log
from tests.contract.conftest import LogUnderTest
from tests.contract.log_facts import hosts, intake, report, runs

ALL_KINDS = tuple(KINDS.values())


async def read(feed: Feed, count: int) -> list[Recorded]:
    """The next `count` facts of the feed."""
    facts: list[Recorded] = []
    while len(facts) < count:
        some = await feed.next(20.0)
        assert some, f"the feed stopped after {len(facts)} of {count} facts"
        facts += some
    return facts


async def read_all(log: Log, kinds: Sequence[type[Fact]] = ALL_KINDS, *, after: int = 0) -> list[Recorded]:
    """What the log holds of these kinds."""
    head = await log.head(kinds)
    feed = await log.follow(kinds, after=Position(after))
    facts: list[Recorded] = []
    while feed.passed < head:
        facts += await feed.next(20.0)
    await feed.close()
    return facts


def ids(facts: Sequence[Recorded]) -> list[FactId]:
    return [recorded.fact.id for recorded in facts]


def positions(facts: Sequence[Recorded]) -> list[int]:
    return [recorded.position for recorded in facts]


# --- appending -----------------------------------------------------------------------------------------------------


def test_facts_come_back_in_order_with_their_positions(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        first = await log.append([intake(1)])
        rest = await log.append([runs(2), hosts(3), report(4)])
        assert (first, rest) == (Appended(last=Position(1)), Appended(last=Position(4)))
        facts = await read_all(log)
        assert positions(facts) == [1, 2, 3, 4]
        assert [recorded.fact for recorded in facts] == [intake(1), runs(2), hosts(3), report(4)]

    log_under_test.run(scenario)


def test_an_empty_append_writes_nothing(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        assert (await log.append([])).duplicate
        assert await log.head() == LOG_START

    log_under_test.run(scenario)


@pytest.mark.parametrize("bad", ["", "two words", "line\nbreak", "tab\t", "käse", "\x7f", "x" * 257])
def test_an_unusable_id_is_refused_and_nothing_is_written(log_under_test: LogUnderTest, bad: str) -> None:
    async def scenario(log: Log) -> None:
        with pytest.raises(ValueError, match="id"):
            await log.append([intake(1), intake(2, id=bad)])
        assert await log.head() == LOG_START

    log_under_test.run(scenario)


def test_an_id_is_written_once(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(1)])
        await log.append([intake(2)])
        assert await log.append([intake(1)]) == Appended(last=Position(1), duplicate=True)
        assert ids(await read_all(log)) == [intake(1).id, intake(2).id]

    log_under_test.run(scenario)


def test_an_id_is_known_whoever_sends_it(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        other = await log_under_test.connect()
        await log.append([intake(1), intake(2)])
        assert await other.append([intake(1), intake(2)]) == Appended(last=Position(2), duplicate=True)

    log_under_test.run(scenario)


def test_of_a_longer_append_only_what_is_new_is_written(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(2)])
        await log.append([intake(4), intake(5)])
        appended = await log.append([intake(number) for number in range(1, 7)])
        assert appended == Appended(last=Position(6), partial=True)
        assert [recorded.fact.at for recorded in await read_all(log)] == [2, 4, 5, 1, 3, 6]

    log_under_test.run(scenario)


def test_a_longer_append_sent_again_is_a_duplicate(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        facts = [intake(number) for number in range(30)]
        await log.append(facts)
        await log.append([intake(99)])
        assert await log.append(facts) == Appended(last=Position(30), duplicate=True)
        assert await log.head() == 31

    log_under_test.run(scenario)


def test_an_id_twice_in_one_append_is_written_once(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        assert await log.append([intake(1), intake(1), intake(2)]) == Appended(last=Position(2))
        assert ids(await read_all(log)) == [intake(1).id, intake(2).id]

    log_under_test.run(scenario)


def test_an_append_of_2500_facts_is_complete_and_in_order(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        facts = [intake(number) for number in range(2_500)]
        assert await log.append(facts) == Appended(last=Position(2_500))
        assert [recorded.fact for recorded in await read_all(log)] == facts
        assert await log.append(facts) == Appended(last=Position(2_500), duplicate=True)
        assert await log.head() == 2_500

    log_under_test.run(scenario)


def test_concurrent_appends_get_their_own_positions(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(7), intake(77)])

        async def append(number: int) -> Appended:
            more = [report(number)] if number % 5 == 0 else []
            return await log.append([intake(number), *more])

        answers = await asyncio.gather(*(append(number) for number in range(200)))
        where = {recorded.fact.id: recorded.position for recorded in await read_all(log)}
        assert len(where) == 240
        for number, answer in enumerate(answers):
            last = report(number) if number % 5 == 0 else intake(number)
            assert answer == Appended(last=where[last.id], duplicate=number in (7, 77))

    log_under_test.run(scenario)


def test_a_bad_append_among_concurrent_ones_fails_alone(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        facts = [intake(number, id="no good" if number == 13 else None) for number in range(40)]
        answers = await asyncio.gather(*(log.append([fact]) for fact in facts), return_exceptions=True)
        failed = [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)]
        assert failed == [13]
        assert len(await read_all(log)) == 39

    log_under_test.run(scenario)


# --- conditional appends -------------------------------------------------------------------------------------------


def test_a_condition_that_holds_lets_the_facts_in(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        first = await log.append([runs(1)], expect=Expect(lane=Lane.RUNS, last=LOG_START))
        await log.append([intake(1)])  # another lane: the guarded one has not moved
        second = await log.append([runs(2), runs(3)], expect=Expect(lane=Lane.RUNS, last=first.last))
        assert (first.last, second.last) == (1, 4)

    log_under_test.run(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_a_condition_that_does_not_hold_lets_none_of_them_in(log_under_test: LogUnderTest, count: int) -> None:
    async def scenario(log: Log) -> None:
        await log.append([runs(1)])
        with pytest.raises(Conflict):
            await log.append(
                [intake(0)] * (count > 1) + [runs(10 + number) for number in range(count)],
                expect=Expect(lane=Lane.RUNS, last=LOG_START),
            )
        assert ids(await read_all(log)) == [runs(1).id]

    log_under_test.run(scenario)


def test_a_condition_on_a_later_position_does_not_hold(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([runs(1)])
        with pytest.raises(Conflict):
            await log.append([runs(2)], expect=Expect(lane=Lane.RUNS, last=Position(2)))

    log_under_test.run(scenario)


@pytest.mark.parametrize("below", [runs, hosts])
def test_a_guard_on_place_covers_the_lanes_below_it(log_under_test: LogUnderTest, below: Callable[[int], Fact]) -> None:
    async def scenario(log: Log) -> None:
        appended = await log.append([below(1)])
        with pytest.raises(Conflict):
            await log.append([runs(2)], expect=Expect(lane=Lane.PLACE, last=LOG_START))
        await log.append([runs(2)], expect=Expect(lane=Lane.PLACE, last=appended.last))

    log_under_test.run(scenario)


def test_a_guard_does_not_cover_the_lane_beside_it(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([hosts(1)])
        assert (await log.append([runs(1)], expect=Expect(lane=Lane.RUNS, last=LOG_START))).last == 2

    log_under_test.run(scenario)


def test_a_conditional_append_may_write_in_other_lanes(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(1), report(1)], expect=Expect(lane=Lane.PLACE, last=LOG_START))
        await log.append([report(2)], expect=Expect(lane=Lane.PLACE, last=LOG_START))
        assert await log.head() == 3

    log_under_test.run(scenario)


@pytest.mark.parametrize("count", [1, 4])
def test_a_conditional_append_sent_again_is_a_duplicate_not_a_conflict(
    log_under_test: LogUnderTest, count: int
) -> None:
    async def scenario(log: Log) -> None:
        facts = [runs(number) for number in range(count)]
        expect = Expect(lane=Lane.PLACE, last=LOG_START)
        await log.append(facts, expect=expect)
        assert await log.append(facts, expect=expect) == Appended(last=Position(count), duplicate=True)
        assert await log.head() == count

    log_under_test.run(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_of_fifty_racing_conditional_appends_one_is_accepted(log_under_test: LogUnderTest, count: int) -> None:
    async def scenario(log: Log) -> None:
        logs = [log] + [await log_under_test.connect() for _ in range(4)]
        last = LOG_START
        for rival in range(3):

            async def append(number: int, rival: int = rival, last: Position = last) -> Appended | None:
                kind = runs if number % 2 else hosts
                facts = [kind(part, by=f"rival{rival}-{number}") for part in range(count)]
                try:
                    return await logs[number % 5].append(facts, expect=Expect(lane=Lane.PLACE, last=last))
                except Conflict:
                    return None

            accepted = [answer for answer in await asyncio.gather(*(append(n) for n in range(50))) if answer]
            assert [answer.last for answer in accepted] == [last + count]
            last = accepted[0].last
        assert await log.head() == 3 * count

    log_under_test.run(scenario)


def test_a_long_conditional_append_guards_every_part(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        first = await log.append([runs(0)])
        facts = [runs(number) if number % 3 else intake(number) for number in range(1, 2_501)]
        await log.append(facts, expect=Expect(lane=Lane.PLACE, last=first.last))
        assert [recorded.fact for recorded in await read_all(log, after=first.last)] == facts
        with pytest.raises(Conflict):
            await log.append(
                [runs(number, by="late") for number in range(ATOMIC_MAX + 1)],
                expect=Expect(lane=Lane.PLACE, last=first.last),
            )
        assert await log.head() == 2_501

    log_under_test.run(scenario)


# --- following -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_a_feed_begins_after_the_position_it_is_given(log_under_test: LogUnderTest, rest_s: float) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(number) for number in range(1, 11)])
        for after in (0, 1, 5, 9):
            feed = await log.follow(ALL_KINDS, after=Position(after), rest_s=rest_s)
            assert feed.passed == after
            assert positions(await read(feed, 10 - after)) == list(range(after + 1, 11))
            assert feed.passed == 10
            await feed.close()

    log_under_test.run(scenario)


def test_a_feed_gives_only_its_kinds_with_their_positions(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        for number in range(20):
            await log.append([intake(number), runs(number), hosts(number), report(number)])
        some = await read_all(log, (RunStopRequested, CheckpointReported))
        assert positions(some) == [n for n in range(1, 81) if n % 4 in (2, 0)]
        assert {type(recorded.fact) for recorded in some} == {RunStopRequested, CheckpointReported}

    log_under_test.run(scenario)


def test_a_feed_that_is_up_to_date_waits_its_time_and_gives_nothing(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(1)])
        feed = await log.follow([JobCancelRequested], after=Position(1))
        clock = asyncio.get_running_loop().time
        began = clock()
        assert not await feed.next(0.2)
        assert 0.15 < clock() - began < 5
        assert not await feed.next(0)
        await log.append([intake(2)])
        assert positions(await read(feed, 1)) == [2]

    log_under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_facts_of_other_kinds_do_not_prolong_the_wait(log_under_test: LogUnderTest, rest_s: float) -> None:
    async def scenario(log: Log) -> None:
        feed = await log.follow([JobSubmitted], after=LOG_START, rest_s=rest_s)
        clock = asyncio.get_running_loop().time
        waiting, began, number = asyncio.create_task(feed.next(0.3)), clock(), 0
        while not waiting.done():
            number += 1
            await log.append([intake(number)])
            await asyncio.sleep(0)
            assert clock() - began < 5
        assert not waiting.result()

    log_under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_a_waiting_feed_gets_the_next_fact(log_under_test: LogUnderTest, rest_s: float) -> None:
    async def scenario(log: Log) -> None:
        feed = await log.follow([JobCancelRequested], after=LOG_START, rest_s=rest_s)
        for number in range(1, 6):
            waiting = asyncio.create_task(feed.next(None))
            await asyncio.sleep(0)
            await log.append([intake(number)])
            assert ids(await waiting) == [intake(number).id]

    log_under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_a_reader_that_is_cancelled_loses_nothing(log_under_test: LogUnderTest, rest_s: float) -> None:
    async def scenario(log: Log) -> None:
        feed = await log.follow([JobCancelRequested], after=LOG_START, rest_s=rest_s)
        facts: list[Recorded] = []
        for number in range(1, 41):
            reading = asyncio.create_task(feed.next(None))
            appending = asyncio.create_task(log.append([intake(number)]))
            for _ in range(number % 7):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait({reading, appending})
            facts += [] if reading.cancelled() else reading.result()
        facts += await read(feed, 40 - len(facts)) if len(facts) < 40 else []
        assert [recorded.fact.at for recorded in facts] == list(range(1, 41))

    log_under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_feeds_follow_while_others_append(log_under_test: LogUnderTest, rest_s: float) -> None:
    async def scenario(log: Log) -> None:
        other = await log_under_test.connect()
        await log.append([intake(number, by="before") for number in range(300)])
        everything = await log.follow(ALL_KINDS, after=LOG_START, rest_s=rest_s)
        some = await other.follow([DrainCompleted], after=LOG_START, rest_s=rest_s)

        async def write(by: str) -> None:
            for number in range(60):
                await log.append([intake(number, by=by)])
                await other.append([hosts(number, by=by), runs(number, by=by)])

        writers = asyncio.gather(*(write(f"writer{k}") for k in range(5)))
        facts, drains = await asyncio.gather(read(everything, 1_200), read(some, 300))
        await writers
        assert positions(facts) == list(range(1, 1_201))
        assert drains == [recorded for recorded in facts if isinstance(recorded.fact, DrainCompleted)]
        assert not await everything.next(0)

    log_under_test.run(scenario)


def test_a_feed_beyond_the_end_is_refused(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(1), intake(2)])
        with pytest.raises(BeyondEnd, match="2"):
            await log.follow(ALL_KINDS, after=Position(3))
        assert not await (await log.follow(ALL_KINDS, after=Position(2))).next(0)

    log_under_test.run(scenario)


def test_the_head_is_the_last_fact_of_the_kinds_asked_for(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        assert await log.head() == LOG_START
        assert await log.head([JobCancelRequested]) == LOG_START
        await log.append([intake(1), hosts(2), hosts(3), intake(4), runs(5)])
        assert await log.head() == 5
        assert await log.head(ALL_KINDS) == 5
        assert await log.head([DrainCompleted]) == 3
        assert await log.head([DrainCompleted, JobCancelRequested]) == 4
        assert await log.head([JobSubmitted]) == LOG_START

    log_under_test.run(scenario)


def test_every_connection_sees_the_same_identity(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        other = await log_under_test.connect()
        assert await log.identity() == await other.identity() != ""

    log_under_test.run(scenario)
