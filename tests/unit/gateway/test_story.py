import string

import pytest

from services.gateway.story import tell
from tenure.domain.host import CPU, HostSpec, HostState, RepairStep
from tenure.domain.ids import HostId, JobId, RunId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.reasons_in_words import WORDINGS, say_number, say_why
from tenure.domain.severity import Severity
from tenure.domain.tree import BudgetTree
from tenure.domain.units import DAY
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.leading import BudgetLeadTaken, HealthLeadTaken, PlacerLeadTaken, RankerLeadTaken
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.policy import KnobChange, PolicyChanged
from tenure.events.ranking import RankingPublished
from tenure.events.reports import (
    CheckpointReported,
    HealthSignal,
    Heartbeat,
    HostRegistered,
    HostSignal,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tests.contract.gateway_rig import place

AT = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
JOB, OTHER, RUN, HOST = JobId("j1"), JobId("j2"), RunId("j1.1"), HostId("h000")
ANA, OLGA = UserName("ana"), UserName("olga")
SPEC = JobSpec(
    budget="science/chem",
    user=ANA,
    replicas=2,
    gpus_per_replica=8,
    launch=Launch(command=("true",)),
    min_runtime_ms=900_000,
    resumable=True,
)
TURN = Why(
    rule="P4", reason=Reason.START_IN_ORDER, numbers={"rank": 3, "ratio": 0.4149, "gpus": 16, "waited_ms": 90_000}
)
RATIO = Why(
    rule="P5",
    reason=Reason.DISRUPT_LOWER_RATIO,
    numbers={
        "level": "science",
        "ratio": 0.4,
        "victim_level": "robotics",
        "victim_ratio": 1.25,
        "margin": 0.02,
        "protected_until_ms": AT,
        "now_ms": AT + 1,
    },
)
LOST = Why(rule="P2", reason=Reason.STOP_HOST_LOST, numbers={"host": "h000", "hosts_lost": 1})
DONE = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={"exit_code": 0})
BY_ANA = Why(rule="P5", reason=Reason.STOP_CANCELLED, numbers={"by": "ana"})
NO_ROOM = Why(
    rule="P6", reason=Reason.DEFER_NO_ROOM, numbers={"gpus_asked": 16, "gpus_free": 3, "next_protection_ends_ms": AT}
)
REFUSED = Why(
    rule="admission", reason=Reason.REJECT_ADMISSION, numbers={"field": "budget", "problem": "gone", "fix": "use bio"}
)
CHARGE = Why(
    rule="P2",
    reason=Reason.CHARGE_REFUNDED,
    numbers={"occupied_gpu_ms": 8 * 3_600_000, "refunded_gpu_ms": 3_600_000, "lost_work_ms": 3_600_000},
)
SILENT = Why(rule="P2", reason=Reason.HOST_SILENT, numbers={"silent_ms": 21_000, "suspect_after_ms": 20_000})

TOLD: list[tuple[Fact, str]] = [
    (
        JobSubmitted(at=AT, job=JOB, spec=SPEC),
        "ana asked science/chem for 2 replicas of 8 GPUs: protected for 15m, resumable.",
    ),
    (JobAdmitted(at=AT, job=JOB, spec=SPEC, submitted_at=AT), "It entered the queue of science/chem."),
    (JobRejected(at=AT, job=JOB, why=REFUSED), "It was rejected: budget: gone; use bio."),
    (JobCancelRequested(at=AT, job=JOB, by=ANA), "ana asked for it to be cancelled."),
    (
        PlacementDeferred(at=AT, job=JOB, why=NO_ROOM),
        "It waits: it asks for 16 GPUs and 3 are free; the next protection ends at 2023-11-14 22:13:20 UTC.",
    ),
    (
        RunAssigned(
            at=AT,
            run=RUN,
            job=JOB,
            number=1,
            budget="science/chem",
            user=ANA,
            placement=place("h000", "h001"),
            launch=SPEC.launch,
            min_runtime_ms=900_000,
            resumable=True,
            grace_ms=1,
            resume_count=0,
            master_address="h000",
            master_port=1,
            why=TURN,
        ),
        "Run 1 was given 16 GPUs on h000, h001: its turn came, at place 3 of the order with its budget at 0.41 of its "
        "share, after 1m30s.",
    ),
    (
        ReplicasStarted(at=AT, run=RUN, job=JOB, replicas=(ReplicaStart(replica=0, host=HOST, at=AT),)),
        "1 process of run 1 started: replica 0 on h000.",
    ),
    (
        RunStarted(at=AT, run=RUN, job=JOB, protected_until=AT + 900_000, charged=True, hosts={}),
        "Run 1 is running on all its hosts, protected for 15m until 2023-11-14 22:28:20 UTC.",
    ),
    (CheckpointReported(at=AT, run=RUN, job=JOB, host=HOST), "Run 1 saved its progress."),
    (
        RunPreemptionRequested(at=AT, run=RUN, job=JOB, by="j2", why=RATIO, escrow=place("h000")),
        "Run 1 is to stop for j2: its protection ended at 2023-11-14 22:13:20 UTC, and science has had 0.40 of its "
        "share while robotics has had 1.25 (margin 0.02).",
    ),
    (
        RunStopRequested(at=AT, run=RUN, job=JOB, by="h000", cause_of_end=EndCause.HOST_LOST, why=LOST),
        "Run 1 is to stop: its host h000 was lost.",
    ),
    (
        ReplicasExited(
            at=AT,
            run=RUN,
            job=JOB,
            replicas=(
                ReplicaExit(replica=0, host=HOST, at=AT, signal=9),
                ReplicaExit(replica=1, host=HostId("h001"), at=AT, code=0),
            ),
        ),
        "2 processes of run 1 ended: replica 0 on h000 by signal 9, replica 1 on h001 with status 0.",
    ),
    (
        RunEnded(at=AT, run=RUN, job=JOB, cause_of_end=EndCause.PREEMPTED, by="j2", exit_code=143, why=BY_ANA),
        "Run 1 was preempted for j2: ana cancelled it.",
    ),
    (
        JobRequeued(
            at=AT,
            job=JOB,
            run=RUN,
            submitted_at=AT,
            resume_count=1,
            why=Why(
                rule="P10", reason=Reason.REQUEUE_PREEMPTED, numbers={"submitted_at_ms": AT, "checkpoint_at_ms": None}
            ),
        ),
        "It waits again: it can resume, so it is back in the queue with its submit time 2023-11-14 22:13:20 UTC.",
    ),
    (
        JobFinished(at=AT, job=JOB, state=JobState.COMPLETED, exit_code=0, why=DONE),
        "It is over, completed with status 0: every replica ended with status 0.",
    ),
    (
        RunCharged(
            at=AT,
            run=RUN,
            job=JOB,
            budget="science/chem",
            user=ANA,
            charged_gpu_ms=7 * 3_600_000,
            refunded_gpu_ms=3_600_000,
            why=CHARGE,
        ),
        "7 GPU-hours of run 1 were charged to science/chem, 1 were refunded: it held GPUs for 8 GPU-hours, of "
        "which the last 1h were lost with a host.",
    ),
    (
        ReservationMade(
            at=AT, job=JOB, placement=place("h000"), latest_start=AT, waits_for=(RunId("j2.1"),), why=NO_ROOM
        ),
        "8 GPUs on h000 are kept for it; it starts at 2023-11-14 22:13:20 UTC at the latest, when what is in its way "
        "will have ended: j2.1.",
    ),
    (ReservationDropped(at=AT, job=JOB, why=LOST), "Its reservation is over: its host h000 was lost."),
    (
        PolicyChanged(
            at=AT,
            policy=Policy(),
            changes=(
                KnobChange(knob="lookback_ms", before=7 * DAY, after=3 * DAY),
                KnobChange(knob="ratio_margin", before=0.02, after=0.05),
            ),
            by=OLGA,
            comment="exam week",
        ),
        "olga changed the policy: lookback from 7d to 3d, ratio_margin from 0.02 to 0.05: exam week.",
    ),
    (
        BudgetTreeChanged(at=AT, tree=BudgetTree(), by=OLGA, comment="new year"),
        "olga changed the budgets: new year.",
    ),
    (
        DrainRequested(at=AT, host=HOST, by=OLGA, comment="fan", fatal=True),
        "olga asked for h000 to be drained, ending its runs at once: fan.",
    ),
    (ResumeRequested(at=AT, host=HOST, by=OLGA), "olga asked for h000 to take runs again."),
    (RepairCompleted(at=AT, host=HOST, by=OLGA, comment="new fan"), "olga repaired h000: new fan."),
    (CapacityChanged(at=AT, host=HOST, gpus=1, gpu_type="H100"), "h000 offers 1 GPU."),
    (
        RepairCompleted(at=AT, host=HOST, by=OLGA, incident="i", step=RepairStep.TEST, ok=False, comment="no CUDA"),
        "olga could not test h000: no CUDA.",
    ),
    (
        RepairRequested(
            at=AT,
            host=HOST,
            incident="i@1",
            step=RepairStep.REPAIR,
            reason=Reason.HOST_SIGNALS,
            evidence=("xid_79",),
        ),
        "The repair plug is to repair h000 for incident i@1 (xid_79).",
    ),
    (DrainCompleted(at=AT, host=HOST, started_at=AT - 60_000), "h000 is empty, 1m after its drain began."),
    (
        HostStateChanged(at=AT, host=HOST, state=HostState.SUSPECT, previous=None, last_seen=AT, why=SILENT),
        "h000 is suspect: it has been silent for 21s (the limit is 20s).",
    ),
    (RankingPublished(at=AT, order=(JOB,), standings=(), basis=1), "The fair-share order was published: 1 job."),
    (BudgetLeadTaken(at=AT, holder="m1:7"), "m1:7 leads the budget role from here on."),
    (HealthLeadTaken(at=AT, holder="m1:7"), "m1:7 leads the health role from here on."),
    (PlacerLeadTaken(at=AT, holder="m1:7"), "m1:7 leads the placer from here on."),
    (RankerLeadTaken(at=AT, holder="m1:7"), "m1:7 leads the ranker from here on."),
    (Heartbeat(at=AT, agent="a1", hosts=()), "The agent a1 spoke for 0 hosts."),
    (
        HostRegistered(
            at=AT, agent="a1", hosts=(HostSpec(host=HOST, gpus=8, gpu_type="H100", block="b", cluster="c"),)
        ),
        "The agent a1 registered h000.",
    ),
    (
        HostSignal(
            at=AT,
            host=HOST,
            signals=(
                HealthSignal(
                    device="0000:0a:00.0",
                    source="kernel",
                    code="xid_79",
                    severity=Severity.FATAL,
                    text="Xid 79",
                    first_at=AT,
                    last_at=AT,
                ),
            ),
        ),
        "h000 signalled 0000:0a:00.0 xid_79 (fatal).",
    ),
]


@pytest.mark.parametrize(("fact", "sentence"), TOLD, ids=[type(fact).__name__ for fact, _ in TOLD])
def test_each_kind_is_told_in_one_sentence(fact: Fact, sentence: str) -> None:
    assert tell(fact) == sentence


def test_every_kind_is_in_the_table_above() -> None:
    assert {type(fact) for fact, _ in TOLD} == set(KINDS.values())


def test_a_waiting_job_is_told_whom_it_may_not_displace() -> None:
    numbers = {"gpus_asked": 8, "gpus_free": 0, "keep_protected": 3, "keep_ratio_not_lower": 1}
    fact = PlacementDeferred(at=AT, job=JOB, why=Why(rule="P6", reason=Reason.DEFER_NO_ROOM, numbers=numbers))
    assert tell(fact) == (
        "It waits: it asks for 8 GPUs and 0 are free; of the runs in its way are 3 protected, 1 of budgets that are "
        "not far enough above it."
    )


def test_the_story_of_a_job_of_cpus_speaks_of_cpus() -> None:
    numbers = {"gpus_asked": 12, "gpus_free": 4}
    no_room = Why(rule="P6", reason=Reason.DEFER_NO_ROOM, numbers=numbers)
    assert tell(PlacementDeferred(at=AT, job=JOB, why=no_room), unit=CPU) == (
        "It waits: it asks for 12 CPUs and 4 are free."
    )
    made = ReservationMade(at=AT, job=JOB, placement=place("h000"), latest_start=AT, waits_for=(), why=no_room)
    assert tell(made, unit=CPU).startswith("8 CPUs on h000 are kept for it")
    assert "GPU" not in tell(next(fact for fact, _ in TOLD if isinstance(fact, RunCharged)), unit=CPU)


@pytest.mark.parametrize(
    ("reason", "free", "said"),
    [
        (Reason.DEFER_FRAGMENTED, 4, "4 are free on 3 hosts, largest hole 2: 0 of its 2 replicas fit"),
        (Reason.DEFER_NO_ROOM, 4, "asks for 16 GPUs and 4 are free on 3 hosts, largest hole 2; the next"),
        (Reason.DEFER_NO_ROOM, 0, "asks for 16 GPUs and 0 are free; the next protection ends at 2023"),
        (Reason.DEFER_NO_TIMETABLE, 4, "for any time yet: 4 are free on 3 hosts, largest hole 2, and too many"),
        (Reason.DEFER_NO_TIMETABLE, 0, "promised for any time yet: too many belong to budgets"),
    ],
)
def test_where_the_free_gpus_are_is_said(reason: Reason, free: int, said: str) -> None:
    numbers = {"gpus_asked": 16, "gpus_free": free, "hosts_with_gpus_free": 3, "largest_hole": 2, "replicas": 2}
    why = Why(rule="P6", reason=reason, numbers={**numbers, "replicas_fit": 0, "next_protection_ends_ms": AT})
    assert said in say_why(why)


def test_what_is_short_and_being_released_is_said() -> None:
    numbers = {"gpus_asked": 16, "gpus_free": 0, "gpus_releasing": 8, "gpus_short": 8, "next_protection_ends_ms": AT}
    why = Why(rule="P6", reason=Reason.DEFER_NO_ROOM, numbers=numbers)
    assert "0 are free; with 8 that are being released 8 are missing; the next" in say_why(why)
    assert "released" not in say_why(Why(rule="P6", reason=why.reason, numbers={**numbers, "gpus_releasing": 0}))


def test_a_search_that_stopped_early_is_said() -> None:
    numbers = {"victims": 2, "runs_looked_at": 2_000, "runs_to_look_at": 9_000}
    said = say_why(Why(rule="P7", reason=Reason.DEFER_VICTIMS_STOPPING, numbers=numbers))
    assert said == "2 runs are being stopped for it (of 9000 that could be, 2000 were looked at)"


def test_a_fact_about_another_job_names_it() -> None:
    fact = RunPreemptionRequested(at=AT, run=RUN, job=JOB, by="j2", why=LOST, escrow=place("h000"))
    assert tell(fact, to=OTHER).startswith("Job j1: run 1 is to stop for j2")
    assert tell(fact, to=JOB).startswith("Run 1 is to stop for j2")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_with_and_without_its_numbers(reason: Reason) -> None:
    wordings = WORDINGS[reason]
    assert say_why(Why(rule="P0", reason=reason)) == wordings[-1]
    for wording in wordings:
        names = [name for _, name, _, _ in string.Formatter().parse(wording) if name]
        numbers = {name: AT if name.endswith("_ms") else 5 for name in names}
        said = say_why(Why(rule="P0", reason=reason, numbers=numbers))
        assert "{" not in said
        assert said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("waited_ms", 90_000, "1m30s"),
        ("protected_until_ms", AT, "2023-11-14 22:13:20 UTC"),
        ("lost_work_gpu_ms", 5_400_000, "1.5 GPU-hours"),
        ("ratio", 1 / 3, "0.33"),
        ("ratio", "inf", "inf"),
        ("fatal", True, "True"),
        ("gpus", 8, "8"),
    ],
)
def test_a_number_is_said_in_the_unit_of_its_name(name: str, value: float, said: str) -> None:
    assert say_number(name, value) == said
