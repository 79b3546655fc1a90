"""The `priority` policy, rule by rule, on small worlds."""

from typing import Any

from services.placer.core import Run
from simulator.agents import Behaviour
from simulator.baseline import PRIORITY
from simulator.baseline.limits import team_limits
from simulator.baseline.queue import Queue, alike_of
from simulator.baseline.yielding import Yielding
from simulator.world import World
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, RunId, UserName
from tenure.domain.job import JobSpec, Launch, ReplicaPlace
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
)
from tests.checks.baseline import at_risk, check_baseline
from tests.scenario.script import build, script_to_world

QUIET = {"heartbeat": "1h", "suspect_after": "3h", "lost_after": "9h"}
HALVES = {"a": {"share": 50}, "b": {"share": 50}}


def submit(job: str, at: str, budget: str, gpus: int, **more: Any) -> dict[str, Any]:
    entry = {"at": at, "submit": job, "budget": budget, "gpus": gpus, "min_runtime": "1h", "runs_for": "2h"}
    return {**entry, "resumable": True, **more}


def fill(job: str, at: str, gpus: int, **more: Any) -> dict[str, Any]:
    return submit(job, at, "b", gpus, **{"min_runtime": "0", "runs_for": "100h", **more})


def play(
    when: list[dict[str, Any]], *, hosts: str = "2x8", budgets: dict[str, Any] | None = None, until: str = "200h"
) -> World:
    """The world in which this happened, all rules checked."""
    given = {"roles": "priority", "hosts": hosts, "budgets": budgets or HALVES, "policy": QUIET}
    world = script_to_world({"given": given, "when": when, "until": until})
    check_baseline(world.recorded)
    return world


def of_kind(world: World, kind: type, **wanted: Any) -> list[Any]:
    facts = (recorded.fact for recorded in world.recorded)
    return [f for f in facts if isinstance(f, kind) and all(getattr(f, k) == v for k, v in wanted.items())]


def began(world: World, job: str) -> list[int]:
    """When the runs of a job were assigned."""
    return [fact.at for fact in of_kind(world, RunAssigned, job=job)]


def test_a_job_with_room_displaces_fill() -> None:
    world = play([fill("sweep", "0s", 8), fill("sweep2", "0s", 8), submit("high", "10m", "a", 8)])
    (told,) = of_kind(world, RunPreemptionRequested)
    assert (told.by, told.why.rule, told.why.reason) == ("high", "B5", Reason.DISRUPT_UNALLOCATED)
    assert began(world, "high") == [10 * MINUTE]
    assert of_kind(world, JobRequeued, job=told.job)
    assert began(world, told.job) == [0, 10 * MINUTE + 2 * HOUR]


def test_a_protected_run_is_never_displaced_however_long_it_runs() -> None:
    world = play(
        [
            submit("long", "0s", "a", 8, min_runtime="15m", runs_for="100h"),
            submit("own", "1h", "b", 8, runs_for="99h"),
            submit("later", "2h", "b", 8, runs_for="1h"),
            submit("beyond", "2h", "a", 8, replicas=2, runs_for="1h"),
        ]
    )
    assert not of_kind(world, RunPreemptionRequested)
    assert began(world, "later") == [100 * HOUR]
    assert of_kind(world, RunEnded, run="long.1", cause_of_end=EndCause.COMPLETED)


def test_beyond_its_limit_a_team_runs_at_risk_and_gives_way_to_a_protected_job() -> None:
    world = play(
        [
            submit("kept", "0s", "a", 8, runs_for="100h"),
            submit("beyond", "1s", "a", 8, runs_for="5h"),
            submit("other", "1h", "b", 4, runs_for="1h"),
        ]
    )
    assert at_risk(recorded.fact for recorded in world.recorded) == {"beyond.1", "beyond.2"}
    (told,) = of_kind(world, RunPreemptionRequested)
    assert (told.run, told.by, told.why.reason) == ("beyond.1", "other", Reason.DISRUPT_AT_RISK)
    assert began(world, "other") == [HOUR]
    assert began(world, "beyond") == [1000, 2 * HOUR]
    assert of_kind(world, JobFinished, job="beyond", state=JobState.COMPLETED)[0].at == 6 * HOUR + 1000


def test_equals_do_not_displace_each_other() -> None:
    """B5: a job at risk takes fill's GPUs, never those of another at risk."""
    world = play(
        [
            submit("kept", "0s", "a", 8, runs_for="100h"),
            fill("sweep", "0s", 8),
            submit("first", "1h", "a", 8, runs_for="10h"),
            submit("second", "2h", "a", 8, runs_for="1h"),
        ]
    )
    (told,) = of_kind(world, RunPreemptionRequested)
    assert (told.run, told.by) == ("sweep.1", "first")
    assert began(world, "second") == [11 * HOUR]


def test_a_hog_starves_the_others_of_its_team() -> None:
    """First come, first served: the past of a user or a team counts nothing."""
    hog = [submit(f"hog{n}", "0s", "a", 8, user="hog", runs_for="10h") for n in range(6)]
    world = play([*hog, submit("late", "1m", "a", 8, user="newcomer")])
    assert began(world, "late") == [30 * HOUR]
    world = play([*hog, submit("late", "1m", "b", 8)])
    assert began(world, "late") == [MINUTE]  # its own team's limit is all that protects the other team


def test_an_idle_team_is_not_paid_back() -> None:
    """What fair share would give to a team that asked for nothing for days: here it gets its limit, as ever."""
    world = play(
        [
            submit("one", "0s", "a", 8, runs_for="150h"),
            submit("two", "0s", "a", 8, runs_for="150h"),
            submit("back1", "72h", "b", 8, runs_for="20h"),
            submit("back2", "72h", "b", 8, runs_for="20h"),
        ]
    )
    assert began(world, "back1") == [72 * HOUR]
    assert began(world, "back2") == [92 * HOUR]


def test_priority_of_the_trace_is_inflated() -> None:
    """B1: everyone is HIGH, so a higher number changes nothing."""
    world = play(
        [
            submit("busy", "0s", "a", 8, runs_for="3h"),
            submit("first", "1m", "a", 8, priority=0),
            submit("second", "2m", "a", 8, priority=5),
        ],
        hosts="1x8",
    )
    assert began(world, "first") == [3 * HOUR]
    assert began(world, "second") == [5 * HOUR]


def test_who_cannot_start_is_passed_over() -> None:
    """B6: a blocked gang holds nobody up, and nothing is kept free for it."""
    world = play(
        [
            submit("busy", "0s", "a", 8, runs_for="10h", resumable=False),
            submit("gang", "1m", "b", 8, replicas=2),
            submit("small", "2m", "b", 8, runs_for="20h", resumable=False),
        ]
    )
    assert began(world, "small") == [2 * MINUTE]
    assert began(world, "gang") == [20 * HOUR + 2 * MINUTE]
    (deferred,) = of_kind(world, PlacementDeferred, job="gang")
    assert deferred.why.reason is Reason.DEFER_NO_ROOM


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """Half of its GPUs are free from the start, but it displaces and waits for all of them."""
    world = play(
        [
            fill("s1", "0s", 8, stops_after="10s"),
            fill("s2", "0s", 8, stops_after="25s"),
            submit("gang", "1m", "a", 8, replicas=3),
        ],
        hosts="3x8",
        budgets={"a": {"share": 100}, "b": {"share": 0}},
    )
    (assigned,) = of_kind(world, RunAssigned, job="gang")
    assert assigned.at == MINUTE + 25_000
    assert {place.host for place in assigned.placement} == {"h000", "h001", "h002"}
    assert {told.run for told in of_kind(world, RunPreemptionRequested)} == {"s1.1", "s2.1"}


def test_no_run_is_displaced_for_a_gang_that_cannot_fit() -> None:
    world = play(
        [
            submit("kept", "0s", "a", 1, runs_for="50h"),
            fill("sweep", "1m", 8, runs_for="30h"),
            submit("gang", "2m", "b", 8, replicas=2, runs_for="1h"),
        ]
    )
    assert not of_kind(world, RunPreemptionRequested)
    assert began(world, "gang") == [50 * HOUR]


def test_the_fewest_and_cheapest_give_way() -> None:
    """Of fill that could make room: who can resume, then the smallest gang, then the youngest; nobody in vain."""
    world = play(
        [
            fill("dear", "0s", 4, resumable=False),
            fill("old", "1m", 4),
            fill("young", "2m", 4),
            fill("whole", "3m", 4),
            submit("high", "10m", "a", 4, runs_for="1h"),
        ]
    )
    (told,) = of_kind(world, RunPreemptionRequested)
    assert told.run == "whole.1"


def test_freed_gpus_are_kept_for_the_asker() -> None:
    """Another job that fits meanwhile, the victim included, does not get them."""
    world = play(
        [
            fill("s1", "0s", 4, stops_after="20s"),
            fill("s2", "0s", 4, stops_after="2s"),
            fill("s3", "0s", 8),
            submit("high", "1m", "a", 8, runs_for="1h"),
            fill("keen", "61s", 4),
        ],
    )
    assert began(world, "high") == [MINUTE + 20_000]
    assert min(began(world, "s2")[1], began(world, "keen")[0]) >= HOUR


def test_who_cannot_resume_is_taken_last_and_is_over_then() -> None:
    world = play(
        [
            submit("kept", "0s", "a", 8, runs_for="100h"),
            submit("session", "1s", "a", 4, resumable=False, runs_for="50h"),
            submit("resumes", "2s", "a", 4, runs_for="50h"),
            submit("first", "1h", "b", 4, runs_for="100h"),
            submit("second", "2h", "b", 4, runs_for="100h"),
        ]
    )
    assert [told.run for told in of_kind(world, RunPreemptionRequested)] == ["resumes.1", "session.1"]
    assert of_kind(world, JobRequeued, job="resumes")
    assert of_kind(world, JobFinished, job="session", state=JobState.PREEMPTED)


def test_a_raised_limit_takes_effect_at_once() -> None:
    world = play(
        [
            submit("kept", "0s", "b", 8, runs_for="100h"),
            submit("beyond", "1s", "b", 8, runs_for="100h"),
            submit("waits", "1m", "a", 8, runs_for="1h"),
            {"at": "1h", "tree": HALVES},
        ],
        budgets={"a": {"share": 25}, "b": {"share": 75}},
    )
    assert began(world, "waits") == [HOUR]
    (told,) = of_kind(world, RunPreemptionRequested)
    assert (told.run, told.why.reason) == ("beyond.1", Reason.DISRUPT_AT_RISK)


def test_a_drain_waits_for_who_opted_out() -> None:
    """B7: people on call would negotiate with the owner of the protected job."""
    when = [
        submit("kept", "0s", "a", 4, min_runtime="15m", runs_for="50h"),
        fill("sweep", "1m", 4, runs_for="60h"),
        {"at": "1h", "drain": "h000"},
    ]
    world = play(when, hosts="1x8")
    (told,) = of_kind(world, RunPreemptionRequested)
    assert (told.run, told.by, told.at, told.why.rule) == ("sweep.1", "h000", HOUR, "B7")
    assert of_kind(world, RunEnded, run="kept.1", cause_of_end=EndCause.COMPLETED)[0].at == 50 * HOUR
    assert began(world, "sweep") == [MINUTE]
    when[-1] = {"at": "1h", "drain": "h000", "fatal": True}
    world = play(when, hosts="1x8")
    assert {told.run for told in of_kind(world, RunPreemptionRequested)} == {"kept.1", "sweep.1"}
    assert of_kind(world, RunEnded, run="kept.1", cause_of_end=EndCause.HOST_LOST)[0].at == HOUR


def test_a_lost_host_brings_its_jobs_back_to_the_queue() -> None:
    """A gang that opted out ends with its host; it keeps its place in the queue, and its team's room."""
    when = [
        submit("gang", "0s", "a", 8, replicas=2, runs_for="10h"),
        submit("behind", "1m", "a", 8, replicas=2, runs_for="1h"),
    ]
    given = {"roles": "priority", "hosts": "2x8", "budgets": {"a": {"share": 100}}, "policy": QUIET}
    script = {"given": given, "when": when, "until": "40h"}
    world = build(script)
    world.at(HOUR, lambda: world.lose(HostId("h001")))
    world.at(2 * HOUR, lambda: world.repair(HostId("h001")))
    script_to_world(script, world)
    check_baseline(world.recorded)
    assert of_kind(world, RunEnded, run="gang.1", cause_of_end=EndCause.HOST_LOST)
    assert began(world, "gang") == [0, 2 * HOUR]
    assert began(world, "behind")[0] > 2 * HOUR


def test_an_escrow_that_expires_lets_the_asker_ask_again() -> None:
    """The host of the escrow is drained while its victim takes its time."""
    world = play(
        [
            fill("s1", "0s", 8, stops_after="20s", grace="25s"),
            submit("high", "1m", "a", 8, runs_for="1h"),
            {"at": "61s", "drain": "h000"},
            {"at": "30m", "resume": "h000"},
        ],
        hosts="1x8",
    )
    reasons = [fact.why.reason for fact in of_kind(world, PlacementDeferred, job="high")]
    assert reasons == [Reason.DEFER_VICTIMS_STOPPING, Reason.DEFER_ESCROW_EXPIRED]
    assert began(world, "high") == [30 * MINUTE]


def test_a_job_whose_launch_was_given_up_is_held_before_another() -> None:
    breaks, mends = {"at": "5m", "breaks": "h000"}, {"at": "630s", "mends": "h000"}
    world = play([breaks, submit("high", "10m", "a", 8), mends], hosts="1x8")
    assert [at - 10 * MINUTE for at in began(world, "high")] == [0, 15_000, 45_000]
    assert [fact.held_until - fact.at for fact in of_kind(world, JobRequeued, job="high")] == [15_000, 30_000]
    (over,) = of_kind(world, JobFinished, job="high")
    assert over.state is JobState.COMPLETED


def test_a_cancelled_job_leaves_the_queue() -> None:
    world = play(
        [
            submit("busy", "0s", "a", 8),
            submit("gone", "1m", "a", 8),
            submit("next", "2m", "a", 8),
            {"at": "10m", "cancel": "gone"},
        ],
        hosts="1x8",
    )
    assert began(world, "gone") == []
    assert began(world, "next") == [2 * HOUR]


def test_a_job_for_a_type_that_is_not_there_disturbs_nobody() -> None:
    world = play([submit("busy", "0s", "a", 8), submit("odd", "1m", "a", 1, gpu_type="B300", runs_for="1h")])
    assert not of_kind(world, RunPreemptionRequested)
    assert began(world, "odd") == []


def test_a_plan_that_was_not_written_is_made_again() -> None:
    """Another role wrote in the guarded lane between the decision and the append."""
    world = play([], until="1m")
    world.submit(JobId("high"), spec(4), Behaviour(runs_for_ms=HOUR))
    world.actor("budget").act(world.now)
    placer = world.actor("placer")
    lost = HostStateChanged(
        at=world.now,
        id=FactId("by-another"),
        host=HostId("h000"),
        state=HostState.SUSPECT,
        previous=HostState.HEALTHY,
        last_seen=world.now,
        why=Why(rule="P9", reason=Reason.HOST_SILENT),
    )
    assert placer.step(world.now, between=lambda: world.log.append_now([lost])) == ()
    (assigned,) = placer.step(world.now)
    assert isinstance(assigned, RunAssigned)
    assert [place.host for place in assigned.placement] == ["h001"]
    assert not placer.step(world.now)


def spec(gpus: int, **more: Any) -> JobSpec:
    given = {"budget": BudgetPath("a"), "user": UserName("u"), "min_runtime_ms": HOUR, "launch": Launch(command=("x",))}
    return JobSpec(gpus_per_replica=gpus, **{**given, **more})


def test_limits_are_shares_of_the_installed_gpus() -> None:
    tree = check_tree(
        {"budgets": {"a": {"share": 60, "children": {"x": {"share": 50}, "y": {"share": 1}}}, "b": {"share": 0}}}
    )
    assert team_limits(tree, gpus=1024) == {"a/x": 307, "a/y": 6, "b": 0}


def test_a_queue_keeps_alike_jobs_in_one_line() -> None:
    queue = Queue()
    for number in range(1000):
        queue.add(JobId(f"j{number:04}"), spec(8, user=UserName(f"u{number}")), 1000 - number, told=False)
    queue.add(JobId("other"), spec(4), 5, told=True)
    (line, other) = queue.lines.values()
    assert line.places[0].job == "j0999" and len(line.untold) == 1000
    assert not other.untold
    for number in range(1000):
        queue.drop(JobId(f"j{number:04}"))
    assert JobId("j0000") not in queue and len(queue) == 1
    assert [line.alike for line in queue.fresh_lines()] == [alike_of(spec(4))]
    queue.drop(JobId("never there"))


def test_fill_of_all_teams_stands_in_one_line() -> None:
    assert alike_of(spec(1, min_runtime_ms=0)) == alike_of(spec(1, min_runtime_ms=0, budget=BudgetPath("b")))
    assert alike_of(spec(1)) != alike_of(spec(1, budget=BudgetPath("b")))


def test_yielding_forgets_a_run_once() -> None:
    place = ReplicaPlace(replica=0, host=HostId("h"), gpus=(1, 3))
    run = Run(run=RunId("j.1"), job=JobId("j"), number=1, placement=(place,), master_port=1, assigned_at=5)
    yielding, masks = Yielding(), {HostId("h"): 0b1010}
    yielding.add(run, spec(2), masks)
    assert (yielding.gpus, yielding.held) == (2, masks)
    yielding.drop(run.run, masks)
    yielding.drop(run.run, masks)
    assert (yielding.gpus, yielding.held, yielding.order) == (0, {"h": 0}, [])


def test_the_roles_are_named_as_the_services() -> None:
    world = play([])
    assert [actor.role.name for actor in world.actors] == ["health", "budget", "placer"]
    assert PRIORITY.__name__ == "priority"
