"""What is simulated: knobs by name, and the window that is reported on."""

from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest

from simulator.knobs import UNPLAYED, parse_knobs
from simulator.plan import Files, Plan, read_plan
from simulator.simulation import Work, without_silence
from simulator.workload import COLUMNS
from tenure.domain.policy import KNOBS, Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR, MINUTE


def test_without_a_word_everything_is_as_it_is() -> None:
    assert parse_knobs(()) == (Policy(), Work())


def test_each_knob_goes_where_it_belongs() -> None:
    policy, work = parse_knobs(["lookback=1d", "restart_overhead=0", "ratio_margin=0.1", "checkpoint_interval=1h"])
    assert policy == replace(Policy(), lookback_ms=DAY, ratio_margin=0.1)
    assert work == Work(restart_overhead_ms=0, checkpoint_interval_ms=HOUR)


def test_every_knob_can_be_set() -> None:
    named = [*KNOBS, *(knob.name for knob in msgspec.structs.fields(Work))]
    for name in named:
        setting = f"{name.removesuffix('_ms')}={'3m' if name.endswith('_ms') else '1'}"
        policy, work = parse_knobs([setting])
        values = {knob.name: getattr(policy, knob.name) for knob in fields(Policy)} | msgspec.structs.asdict(work)
        assert values[name] == (3 * MINUTE if name.endswith("_ms") else 1), setting
    policy, _ = parse_knobs(["rates={B200: 2.5}", "clusters={dev: {min_runtime_cap: 3m}}"])
    assert (policy.rates_milli, policy.clusters) == ({"B200": 2_500}, {"dev": {"min_runtime_cap_ms": 3 * MINUTE}})


def test_the_knobs_that_change_nothing_are_known() -> None:
    odd = Policy(heartbeat_ms=1, suspect_after_ms=2, lost_after_ms=3, block_lost_after_ms=4)
    assert without_silence(odd) == without_silence(Policy()), "they are the only ones"
    assert {f"{name}_ms" for name in UNPLAYED} == {
        knob.name for knob in fields(Policy) if getattr(odd, knob.name) != getattr(Policy(), knob.name)
    }


def test_an_unknown_knob_lists_the_known_ones() -> None:
    with pytest.raises(Refusal) as caught:
        parse_knobs(["restart_overhed=1m"])
    said = str(caught.value)
    assert said.startswith("--set: unknown knob 'restart_overhed'; did you mean restart_overhead? known: ")
    for knob in ("lookback (7d)", "ratio_margin (0.02)", "restart_overhead (2m)", "checkpoint_interval (30m)"):
        assert knob in said


@pytest.mark.parametrize(
    "setting", ["lookback_ms=1", "restart_overhead_ms=1", "=1", "heartbeat", "checkpoint_interval=0"]
)
def test_what_is_no_setting(setting: str) -> None:
    with pytest.raises(Refusal):
        parse_knobs([setting])


def plan(
    folder: Path,
    *submit_s: float,
    days: float | None = None,
    warmup: int | None = None,
    settings: tuple[str, ...] = (),
) -> Plan:
    """The plan of a trace with jobs at these instants."""
    (folder / "cluster.yaml").write_text("hosts: [{name: a, gpus: 8, gpu_type: H100}]\n")
    (folder / "budgets.yaml").write_text("budgets: {lab: {share: 100}}\n")
    rows = [f"j{number},{at},lab,ana,1,1,0,60,true,0,x" for number, at in enumerate(submit_s)]
    (folder / "trace.csv").write_text("\n".join([",".join(COLUMNS), *rows]))
    files = Files(cluster=folder / "cluster.yaml", budgets=folder / "budgets.yaml", trace=folder / "trace.csv")
    return read_plan(files, settings=settings, days=days, warmup=warmup, skip_bad=False)


DAY_S = DAY // 1000


@pytest.mark.parametrize(
    ("last_s", "start", "end"),
    [
        (0, 0, DAY),
        (DAY_S - 0.001, 0, DAY),
        (DAY_S, 0, 2 * DAY),
        (7 * DAY_S - 1, 0, 7 * DAY),
        (7 * DAY_S, 7 * DAY, 8 * DAY),
        (36.99 * DAY_S, 7 * DAY, 37 * DAY),
    ],
)
def test_the_end_is_that_of_the_last_day_and_the_warm_up_a_week(tmp_path: Path, last_s, start: int, end: int) -> None:
    made = plan(tmp_path, 0, last_s)
    assert (made.start, made.end, len(made.jobs)) == (start, end, 2)


def test_days_leave_out_what_is_submitted_later(tmp_path: Path) -> None:
    made = plan(tmp_path, 0, DAY_S - 1, DAY_S, 3 * DAY_S, days=1)
    assert (made.end, [job.job for job in made.jobs]) == (DAY, ["j0", "j1"])


def test_days_may_be_more_than_the_trace_has(tmp_path: Path) -> None:
    made = plan(tmp_path, 0, days=9)
    assert (made.start, made.end, len(made.jobs)) == (7 * DAY, 9 * DAY, 1)


@pytest.mark.parametrize("days", [0, -1, 10_001, float("nan"), float("inf"), 0.5, 1e-12])
def test_days_that_leave_nothing(tmp_path: Path, days: float) -> None:
    with pytest.raises(Refusal, match=r"^--days: "):
        plan(tmp_path, DAY_S - 1, days=days)


def test_a_warm_up_of_the_whole_run(tmp_path: Path) -> None:
    assert plan(tmp_path, 0, warmup=DAY - 1).start == DAY - 1
    with pytest.raises(Refusal, match=r"^--warmup: 1d leaves nothing of 1 days to report on; give a shorter one"):
        plan(tmp_path, 0, warmup=DAY)


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        ("rates={H10: 2}", "rates.H10: no host has GPUs of this type; did you mean H100? known: H100"),
        ("clusters={man: {job_failures: 2}}", "clusters.man: there is no such cluster; did you mean main? known: main"),
    ],
)
def test_types_and_clusters_of_the_policy_are_those_of_the_hosts(tmp_path: Path, knob: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan(tmp_path, 0, settings=(knob,))
    assert str(caught.value) == said
