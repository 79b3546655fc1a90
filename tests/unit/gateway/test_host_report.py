"""The numbers of the hosts, from what health really writes: scenarios and a history made by hand."""

from pathlib import Path

from services.gateway.metrics import readings
from services.gateway.policy.host_report import HostReport, host_report, spread
from services.gateway.state import State, dump, load
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.units import DAY, HOUR, MINUTE
from tests.scenario.script import instant, script_to_world
from tests.scenario.script import load as load_script
from tests.unit.gateway.test_worlds import fold

SCENARIOS = Path(__file__).parents[2] / "scenario"


def played(name: str) -> State:
    return fold(script_to_world(load_script(SCENARIOS / f"{name}.yaml")).recorded)


def reported(state: State, *, until: str) -> HostReport:
    return host_report(state, since=0, until=instant(until))


def test_a_host_repaired_by_the_plug_is_an_incident_without_a_person() -> None:
    state = played("a_host_is_repaired_and_tested_without_a_person")
    report = reported(state, until="3h")
    (one,) = report.incidents
    assert (one.host, one.reason, one.ending, one.state) == ("h000", "host_signal_fatal", "automatic", "healthy")
    assert (one.began_at, one.drained_at, one.ended_at) == (10 * MINUTE, 10 * MINUTE, 25 * MINUTE)
    assert report.automatic_share == 1 and report.repair.longest_ms == 15 * MINUTE
    assert report.out_gpu_ms == 8 * 15 * MINUTE
    assert report.availability == 1 - 15 / (2 * 180)
    (cause,) = report.causes
    assert (cause.reason, cause.automatic, cause.human, cause.still_open) == ("host_signal_fatal", 1, 0, 0)


def test_a_failed_repair_is_a_persons_or_open() -> None:
    report = reported(played("a_repair_that_fails_needs_a_person"), until="6h")
    endings = {one.host: (one.ending, one.by) for one in report.incidents}
    assert endings == {"h000": ("human", "operator"), "h001": ("open", None)}
    assert report.automatic_share == 0


def test_what_a_lost_host_cost_is_on_its_incident() -> None:
    report = reported(played("a_lost_gpu_ends_its_host_runs_now"), until="5h")
    assert report.refunded_gpu_ms == 8 * 30 * MINUTE == report.incidents[0].refunded_gpu_ms
    assert report.causes[0].refunded_gpu_ms == report.refunded_gpu_ms


def test_detection_is_counted_from_the_first_sign() -> None:
    report = reported(played("a_signal_has_to_last"), until="3h")
    assert (report.detect.count, report.detect.longest_ms) == (1, MINUTE)


def test_a_planned_drain_is_out_of_service_but_no_trouble() -> None:
    report = reported(played("repaired_host_takes_runs_again"), until="1h")
    assert report.causes[0].reason == "host_drain_requested" and report.out_gpu_ms == 8 * 9 * MINUTE
    assert report.automatic_share is None and report.detect.count == 0


def test_a_window_cuts_what_lies_outside() -> None:
    state = played("a_host_is_repaired_and_tested_without_a_person")
    report = host_report(state, since=20 * MINUTE, until=HOUR)
    assert report.out_gpu_ms == 8 * 5 * MINUTE
    assert host_report(state, since=HOUR, until=2 * HOUR).incidents == ()


def test_a_maintenance_window_is_out_of_service_from_its_beginning() -> None:
    report = reported(played("a_maintenance_window_takes_what_ends_before"), until="12h")
    (one,) = report.incidents
    assert (one.began_at, one.ended_at, one.comment) == (10 * MINUTE, 5 * HOUR, "scenario")
    assert report.out_gpu_ms == 8 * HOUR
    early = host_report(played("a_maintenance_window_takes_what_ends_before"), since=0, until=2 * HOUR)
    assert (early.out_gpu_ms, early.availability) == (0, 1)


def test_a_host_counts_from_its_registration() -> None:
    state = played("repaired_host_takes_runs_again")
    state.hosts[HostId("h000")].registered_at = 30 * MINUTE
    report = reported(state, until="1h")
    assert report.availability is not None and round(1 - report.availability, 6) == round(9 / 30, 6)


def test_cpus_are_no_gpus_in_it() -> None:
    held = {"gpu_type": "CPU", "min_runtime": "2h", "runs_for": "2h"}
    script = {
        "given": {
            "hosts": [
                {"name": "h100", "hosts": 1, "gpus_per_host": 8, "gpu_type": "H100"},
                {"name": "dev", "hosts": 4, "cpus_per_host": 48},
            ],
            "budgets": {"a": {"share": 100}},
        },
        "when": [
            {"at": "0s", "submit": "s", "budget": "a", "gpus": 48, **held},
            {"at": "1h", "signal": "dev-h000", "code": "xid_79", "device": "gpu5"},
        ],
        "until": "3h",
    }
    report = reported(fold(script_to_world(script).recorded), until="3h")
    (one,) = report.incidents
    assert (one.host, one.gpus, one.refunded_gpu_ms) == ("dev-h000", 0, 0)
    assert (report.hosts, report.gpus, report.availability, report.out_gpu_ms) == (5, 8, 1, 0)


def test_the_metrics_say_the_same() -> None:
    told = readings(played("a_repair_that_fails_needs_a_person"), now=6 * HOUR, policy=Policy(), seen={})
    states = {of["state"]: value for value, of in told["tenure.hosts.in_state"]}
    assert (states["healthy"], states["failed"], sum(states.values())) == (3, 1, 4)
    incidents = {of["ending"]: value for value, of in told["tenure.incidents"]}
    assert incidents == {"automatic": 0, "human": 1, "open": 1}
    [(availability, _)] = told["tenure.hosts.availability"]
    assert availability == 1 - (290 + 350) / (4 * 360)


def test_the_incidents_survive_a_snapshot() -> None:
    state = played("automation_holds_a_part_at_most")
    again = load(dump(state))
    assert host_report(again, since=1, until=DAY) == host_report(state, since=1, until=DAY)


def test_spreads_are_nearest_ranks() -> None:
    ten = spread(range(1, 11))
    assert (ten.count, ten.p50_ms, ten.p90_ms, ten.longest_ms) == (10, 5, 9, 10)
    assert spread([]).count == 0 and spread([7]).p50_ms == 7
