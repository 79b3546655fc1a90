"""What `tenure why` says: in plain sentences, with both sides' hours beside every ratio, and the same in fields."""

import re
from pathlib import Path
from typing import Any

import pytest

from services.gateway.explaining import Explaining
from services.gateway.history import about, job_from_story
from tenure.domain.ids import JobId
from tenure.domain.reasons_in_words import say_ahead
from tenure.domain.units import HOUR
from tenure.v1 import jobs_pb2
from tests.scenario.script import load
from tests.unit.gateway.explained import SCENARIOS, acted, explain, explained, played


def test_a_run_in_the_way_is_named_with_its_protection_and_both_sides() -> None:
    answer = explained("contract_is_kept_then_the_poorer_budget_wins", "other", "20m")
    assert answer.answer == [
        "It waits for 8 GPUs, at place 1 of the order; queued in all: 1 job.",
        "None of the 8 GPUs that it could use is free.",
        "No job comes before it.",
        "1 run holds 8 GPUs on hosts that it could use.",
        "long.1 (ana, b, 8 GPUs) is protected by contract until 01:00 UTC (in 40m).",
        "By contracts and ratios as they are it cannot start before 01:00 UTC (in 40m), when the protection of long.1 "
        "ends.",
    ]
    (run,) = answer.before.runs
    assert (run.run_id, run.kept, run.protected_until_ms) == ("long.1", "keep_protected", HOUR)
    assert (run.sides.own.budget, run.sides.other.budget, run.sides.same_budget) == ("a", "b", False)
    assert run.sides.own.ahead_gpu_ms < 0 < run.sides.other.ahead_gpu_ms
    assert run.sides.own.ratio < 1 < run.sides.other.ratio
    assert (answer.expected.earliest_at_ms, answer.expected.earliest_basis) == (HOUR, "protection")
    assert answer.expected.latest_at_ms == 0 and answer.expected.text == answer.answer[-1]


def test_who_had_to_give_way_reads_the_rule_the_asker_and_both_sides() -> None:
    answer = explained("contract_is_kept_then_the_poorer_budget_wins", "long", "61m")
    assert answer.answer[:4] == [
        "Run 1 had to give way at 01:00 UTC (1m ago) to job other (ana, a, 8 GPUs).",
        "It had run for 1h; its contract protected the first 1h of that.",
        "The rule is P5: its protection ended at 1970-01-01 01:00:00 UTC, and a has had 0.00 of its share (4.0 "
        "GPU-hours behind) while b has had 2.02 (4.0 GPU-hours ahead; margin 0.02).",
        "It was queued again at 01:00 UTC (1m ago): it can resume, so it is back in the queue with its submit time "
        "1970-01-01 00:00:00 UTC and its checkpoint of 1970-01-01 01:00:00 UTC.",
    ]
    (gave_way,) = answer.gave_way
    assert (gave_way.run_id, gave_way.by, gave_way.by_budget, gave_way.by_user) == ("long.1", "other", "a", "ana")
    assert (gave_way.why.rule, gave_way.why.reason) == ("P5", "disrupt_lower_ratio")
    assert (gave_way.protected_until_ms, gave_way.ran_ms) == (HOUR, HOUR)
    assert (gave_way.sides.own.budget, gave_way.sides.other.budget) == ("b", "a")
    assert gave_way.sides.other.ahead_gpu_ms < 0 < gave_way.sides.own.ahead_gpu_ms
    assert "01:30 UTC" in " ".join(answer.answer[4:]), "and what it waits for now"


def test_an_end_without_resuming_says_so() -> None:
    answer = explained("victims_are_stopping", "free", "30m")
    assert answer.answer[-1].startswith("It is over, preempted: it cannot resume,")
    assert "gave way" not in " ".join(answer.answer) and answer.gave_way[0].protected_until_ms == 0
    assert list(answer.answer) == list(answer.gave_way[0].answer), "and says it once"


def gives_way(until: str, *, cancel_at: str = "", **behaviour: Any) -> list[str]:
    """What is said of `long`, which had to give way at 1 h to another budget's job and takes 20 s for it."""
    long = {"submit": "long", "budget": "b", "gpus": 8, "min_runtime": "1h", "runs_for": "5h", "grace": "1m"}
    other = {"at": "20m", "submit": "other", "budget": "a", "gpus": 8, "min_runtime": "30m", "runs_for": "2h"}
    cancels = [{"at": cancel_at, "cancel": "long"}] if cancel_at else []
    script = {
        "given": {"hosts": "1x8", "budgets": {"a": {"share": 50}, "b": {"share": 50}}, "policy": {"lookback": "4h"}},
        "when": [{"at": "0s", **long, "stops_after": "20s", **behaviour}, other, *cancels],
    }
    return list(explain(*acted(script, until), "long").answer)


def test_while_a_run_stops_it_is_said_what_follows() -> None:
    told = gives_way("60m10s", resumable=True)
    assert told[3].startswith("As it can resume, when its run is gone it goes back to the queue"), told
    told = gives_way("60m10s")
    assert told[3].startswith("As it cannot resume, when its run is gone it is over, preempted, unless all"), told
    assert "was told to end" in told[4]
    assert gives_way("60m10s", cancel_at="60m5s")[3].startswith("It was cancelled meanwhile")


@pytest.mark.parametrize("resumable", [True, False])
def test_who_ends_well_in_its_grace_is_completed(resumable: bool) -> None:
    told = gives_way("70m", resumable=resumable, stop_exit_code=0, saves_on_stop=False)
    assert told[0].startswith("Run 1 had to give way")
    assert told[3:] == ["It is over, completed: every replica ended with status 0."]


def test_who_is_cancelled_after_it_was_queued_again_reads_both() -> None:
    told = gives_way("70m", cancel_at="65m", resumable=True)
    assert told[3].startswith("It was queued again at 01:00 UTC")
    assert told[4:] == ["It is over, cancelled: operator cancelled it."]


def test_who_is_cancelled_while_its_run_ends_reads_by_whom() -> None:
    told = gives_way("70m", cancel_at="60m5s", resumable=True)
    assert told[3:] == ["It is over, cancelled: operator cancelled it while its run was ending."]


def test_a_fatal_drain_breaks_a_contract_and_queues_the_job_again() -> None:
    answer = explained("fatal_drain_ends_protected_runs", "paid", "11m")
    assert answer.gave_way[0].answer[1] == (
        "It had run for 10m, and its contract promised 8h: only a lost host or a fatal drain ends a run sooner."
    )
    script = load(SCENARIOS / "fatal_drain_ends_protected_runs.yaml")
    for entry in script["when"]:
        entry.pop("resumable", None)
    script["when"][0]["stops_after"] = "20s"
    told = explain(*acted(script, "10m10s"), "paid").gave_way[0].answer[-1]
    assert told.startswith("When its run is gone, it goes back to the queue with its first submit time")
    told = explain(*acted(script, "11m"), "paid").gave_way[0].answer[-1]
    assert told.startswith("It was queued again at 00:10 UTC") and "its host was lost" in told


def test_a_drain_is_no_job() -> None:
    answer = explained("drain_waits_for_contracts", "paid", "70m")
    assert answer.answer[0] == "Run 1 had to give way at 01:00 UTC (10m ago) to a drain of host h000."
    assert answer.gave_way[0].by == "h000" and not answer.gave_way[0].by_budget
    (host,) = answer.before.hosts
    assert (host.host, host.state, host.gpus, answer.before.hosts_gpus) == ("h000", "drained", 8, 8)
    assert answer.expected.earliest_basis == "no_host"


def test_a_run_on_a_host_that_drains_leaves_when_its_protection_ends() -> None:
    """It is kept by its ratio from a job of the richer budget, and would be so after its protection, but for P9."""
    script = {
        "given": {"hosts": "2x8", "budgets": {"a": {"share": 50}, "b": {"share": 50}}, "policy": {"lookback": "4h"}},
        "when": [
            {"at": "0s", "submit": "gang", "budget": "a", "gpus": 8, "replicas": 2, "min_runtime": "1h"}
            | {"runs_for": "5h", "resumable": True},
            {"at": "10m", "drain": "h001"},
            {"at": "20m", "submit": "asks", "budget": "a", "gpus": 8, "min_runtime": "30m", "runs_for": "30m"},
        ],
    }
    answer = explain(*acted(script, "30m"), "asks")
    said = answer.answer[4]
    assert "gang.1 (ana, a, 16 GPUs) is on a host that drains, so it has to leave at 01:00 UTC (in 30m)" in said
    assert (answer.expected.earliest_at_ms, answer.expected.earliest_basis) == (HOUR, "protection")
    assert answer.before.runs[0].drained_at_ms == HOUR
    (said,) = explain(*acted(script, "70m"), "asks").answer
    assert said.startswith("Run 1 holds 8 GPUs since 01:00 UTC"), "and so it is"


def test_before_a_maintenance_window_a_run_leaves_with_it() -> None:
    """Past its protection, and of the same budget: nothing but the window ends it."""
    script = {
        "given": {"hosts": "1x8", "budgets": {"a": {"share": 50}, "b": {"share": 50}}},
        "when": [
            {"at": "0s", "submit": "long", "budget": "a", "gpus": 8, "min_runtime": "10m", "runs_for": "5h"},
            {"at": "15m", "drain": "h000", "empty_at": "2h"},
            {"at": "20m", "submit": "asks", "budget": "a", "gpus": 8, "min_runtime": "30m", "runs_for": "30m"},
        ],
    }
    answer = explain(*acted(script, "30m"), "asks")
    said = " ".join(answer.answer)
    assert "long.1 (ana, a, 8 GPUs) is on a host that drains, so it has to leave at 02:00 UTC (in 1h30m)" in said
    assert "but of its own budget" not in said


def test_a_rejection_is_arithmetic() -> None:
    answer = explained("what_fits_in_total_and_on_no_host_is_refused", "twelve", "5m")
    assert "12 replicas x 4 GPUs do not fit the empty cluster: each host fits 1" in answer.answer[0]
    assert (answer.rejection.field, answer.rejection.fix) == (
        "replicas",
        "ask for at most 10 replicas, or for fewer GPUs each",
    )


def test_holes_are_counted() -> None:
    answer = explained("gang_is_whole_or_not_at_all", "gang", "2m")
    assert answer.answer[1] == "9 GPUs are free on 3 hosts, largest hole 3: 0 of its 2 replicas fit."
    (room,) = answer.before.room
    assert (room.gpus_free, room.hosts_with_gpus_free, room.largest_hole, room.replicas_fit) == (9, 3, 3, 0)


def test_a_gang_for_one_block_is_counted_in_one_block() -> None:
    """As the placer counts: the scenario expects `replicas_fit_one_block: 28`."""
    answer = explained("a_gang_in_one_block_waits_for_one", "strict", "90s")
    assert answer.answer[1] == ("36 GPUs are free on 36 hosts, largest hole 1: 28 of its 30 replicas fit in one block.")
    (room,) = answer.before.room
    assert (room.gpus_free, room.replicas_fit) == (36, 28)


def test_ones_own_reservation_is_a_latest_start() -> None:
    answer = explained("a_blocked_gang_has_a_latest_start", "gang", "20m")
    said = " ".join(answer.answer)
    assert "16 GPUs on 2 hosts are kept for it, which r1.1, r2.1 have to leave first" in said
    assert "At the latest it starts at 02:01 UTC (in 1h41m)." in said
    assert (answer.expected.latest_at_ms, answer.expected.latest_basis) == (121 * 60_000, "reservation")


@pytest.mark.parametrize(
    ("job", "until", "because", "words"),
    [
        ("big", "60m", "smaller_commitment", "asks for less GPU-time"),
        ("small010", "100m", "submitted_earlier", "was submitted earlier"),
    ],
)
def test_inside_a_budget_it_is_said_what_puts_a_job_in_front(job: str, until: str, because: str, words: str) -> None:
    answer = explained("a_big_job_is_passed_for_a_while_only", job, until)
    assert answer.before.jobs[-1].because == because and answer.before.jobs[-1].sides.same_budget
    assert words in " ".join(answer.answer)


def test_jobs_like_it_that_are_not_listed_come_before_it_too() -> None:
    answer = explained("a_big_job_is_passed_for_a_while_only", "small010", "100m")
    assert [(one.job_id, one.rank) for one in answer.before.jobs] == [("big", 1), ("small008", 2), ("small009", 0)]
    assert answer.before.jobs[0].because == "waited_longer"
    assert (answer.before.jobs_count, answer.before.jobs_gpus) == (3, 24)


def test_a_poorer_budget_comes_first_with_its_hours() -> None:
    answer = explained("order_lower_ratio_first", "a3", "40m")
    (first,) = answer.before.jobs
    assert (first.job_id, first.because, first.rank) == ("b1", "lower_ratio", 1)
    assert first.sides.other.ratio < first.sides.own.ratio and first.sides.other.ahead_gpu_ms < 0
    behind, ahead = r"\(5\.3 GPU-hours behind\)", r"\([\d.]+ GPU-hours ahead\)"
    sides = rf"b has had 0\.00 of its share {behind} and its own a has had [\d.]+ of its share {ahead}"
    said = rf"One job comes before it: b1 \(ana, b, 8 GPUs\), because {sides}: the lower of the two comes first\."
    assert re.fullmatch(said, answer.answer[2]), answer.answer[2]


def test_who_is_over_its_share_reads_that_nobody_has_to_go() -> None:
    answer = explained("who_is_over_its_share_moves_nobody_who_is_under", "ask", "121m")
    kept = {run.kept for run in answer.before.runs}
    assert kept == {"keep_priority_not_higher", "keep_ratio_not_lower"}
    said = " ".join(answer.answer)
    assert (
        "under has had 0.64 of its share (40.0 GPU-hours behind), its own over has had 1.67 of its share (32.0" in said
    )
    assert answer.expected.earliest_at_ms == 0 and "as ratios and priorities are now" in answer.expected.text


@pytest.mark.parametrize(
    ("name", "job", "until", "words"),
    [
        ("victims_are_stopping", "paid", "30m", "Nothing preempts it before 01:01 UTC (in 31m20s)."),
        (
            "who_is_over_its_share_moves_nobody_who_is_under",
            "o1",
            "121m",
            "its own over has had 1.67 of its share (32.0",
        ),
        ("unallocated_fills_and_gives_way", "free", "5m", "gives way at once to any job with a contract."),
    ],
)
def test_who_runs_reads_how_safe_that_is(name: str, job: str, until: str, words: str) -> None:
    (said,) = explained(name, job, until).answer
    assert said.startswith("Run 1 holds ") and words in said.replace("Its own", "its own")


def test_a_hold_after_failed_launches_has_its_end() -> None:
    answer = explained("launches_given_up_hold_the_job", "j", "12m")
    assert answer.expected.earliest_basis == "hold" and answer.expected.earliest_at_ms > 12 * 60_000


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("[n-z]*.yaml")), ids=lambda path: path.stem)
def test_every_job_of_every_scenario_has_an_answer(path: Path) -> None:
    """Half of the scenarios, on the way and at their end; no ratio is said without its hours."""
    script = load(path)
    for until in ("65m", script["until"]):
        world, state = played(path.stem, until)
        for job in state.jobs:
            answer = explain(world, state, job)
            assert answer.answer, job
            for sentence in answer.answer:
                assert sentence.endswith(".") and "None" not in sentence.replace("None of", "")
                for said in re.findall(r"has had \d+\.\d\d of its share.{0,30}", sentence):
                    assert re.search(r"\([\d,.]+ GPU-hours|\(level", said), sentence


def test_a_job_that_is_no_longer_kept_is_not_said_to_be_level() -> None:
    """Its own facts say ratios, and no shares to turn them into hours."""
    world, state = played("contract_is_kept_then_the_poorer_budget_wins", "9h")
    facts = [each for each in world.recorded if about(each.fact) == "long"]
    entry = job_from_story(facts, JobId("long"))
    assert entry is not None and entry.state.final
    del state.jobs[JobId("long")]
    answer = jobs_pb2.ExplainJobResponse()
    Explaining(state, now=world.now, policy=world.policy).fill(answer, entry, facts)
    (gave_way,) = answer.gave_way
    assert gave_way.why.numbers["ratio"] and not gave_way.HasField("sides")


def test_hours_are_said_in_words() -> None:
    assert say_ahead(0) == "level with it"
    assert say_ahead(-150 * HOUR) == "150 GPU-hours behind"
    assert say_ahead(90 * 60_000) == "1.5 GPU-hours ahead"
    assert say_ahead(-1) == "0.01 GPU-hours behind"
