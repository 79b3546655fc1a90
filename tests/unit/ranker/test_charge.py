"""P2 and the commitment of P3, by hand: what a budget is charged and is promised, and when."""

from tenure.domain.host import HostState
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, GpuMillis
from tests.unit.ranker.scene import Scene

WEEK = 7 * DAY
HALVES = {"a": 50, "b": 50}


def charged(scene: Scene, path: str, now: int) -> GpuMillis:
    """Charged in the window at an instant."""
    return scene.standing(path, now).charged_gpu_ms


def committed(scene: Scene, path: str, now: int) -> GpuMillis:
    """Promised at an instant."""
    return scene.standing(path, now).commitment_gpu_ms


def test_a_running_job_is_charged_as_it_runs() -> None:
    """S78: not only when it is finished."""
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10)
    run = scene.run("j")
    assert charged(scene, "a", HOUR) == 10 * HOUR
    assert charged(scene, "a", 3 * HOUR + 1) == 10 * (3 * HOUR + 1)
    scene.now = 4 * HOUR
    scene.complete(run)
    assert charged(scene, "a", 5 * HOUR) == 40 * HOUR


def test_a_run_leaves_the_window_millisecond_by_millisecond() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10)
    run = scene.run("j")
    scene.now = HOUR
    scene.complete(run)
    assert charged(scene, "a", WEEK + HOUR // 2) == 10 * HOUR // 2
    assert charged(scene, "a", WEEK + HOUR - 1) == 10
    assert charged(scene, "a", WEEK + HOUR) == 0


def test_the_charge_goes_up_the_path() -> None:
    scene = Scene({"lab": 50, "lab/a": 40, "lab/b": 60, "rest": 50})
    scene.job("j", "lab/a", gpus=10)
    scene.run("j")
    assert [charged(scene, path, HOUR) for path in ("lab", "lab/a", "lab/b", "rest")] == [10 * HOUR, 10 * HOUR, 0, 0]


def test_what_is_charged_is_what_replicas_hold_not_what_was_assigned() -> None:
    """S41: a run that is assigned and never starts costs nothing, whatever became of it."""
    scene = Scene(HALVES)
    for number in range(100):
        scene.now = number * MINUTE
        scene.job(f"j{number}", "a")
        run = scene.assign(f"j{number}")
        scene.end(run, EndCause.FAILED)
        scene.charge(run, charged=0)
        scene.finish(f"j{number}", JobState.FAILED)
    standing = scene.standing("a", 2 * DAY)
    assert (standing.charged_gpu_ms, standing.commitment_gpu_ms) == (0, 0)


def test_replicas_are_charged_one_by_one() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=5, replicas=2)
    run = scene.run("j")
    scene.now = HOUR
    scene.exit(run, only=0)
    assert charged(scene, "a", 2 * HOUR) == 5 * HOUR + 5 * 2 * HOUR


def test_charging_does_not_depend_on_the_queue() -> None:
    """S42: two equal jobs; the queue of one budget is empty, the other's is full and then cancelled."""
    scene = Scene(HALVES)
    for path in ("a", "b"):
        scene.job(f"{path}0", path, gpus=4)
    runs = [scene.run(f"{path}0") for path in ("a", "b")]
    for number in range(1, 9):
        scene.job(f"b{number}", "b")
    scene.act(MINUTE)
    for number in range(1, 9):
        scene.finish(f"b{number}", JobState.CANCELLED)
    scene.now = 3 * MINUTE
    for run in runs:
        scene.complete(run)
    assert charged(scene, "a", HOUR) == charged(scene, "b", HOUR) == 4 * 3 * MINUTE


def test_unallocated_runs_are_never_charged() -> None:
    scene = Scene(HALVES)
    scene.job("free", "a", min_runtime_ms=0)
    scene.run("free")
    standing = scene.standing("a", HOUR)
    assert (standing.charged_gpu_ms, standing.commitment_gpu_ms) == (0, 0)


def test_a_silent_host_s_run_is_charged_to_its_last_sign_of_life() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=5, replicas=2)
    scene.run("j", hosts=("h0", "h1"))
    scene.now = HOUR
    scene.host("h1", HostState.SUSPECT, last_seen=HOUR - 20 * SECOND)
    assert charged(scene, "a", 2 * HOUR) == 5 * 2 * HOUR + 5 * (HOUR - 20 * SECOND)


def test_a_host_that_is_heard_again_was_never_silent() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.run("j")
    scene.now = HOUR
    scene.host("h0", HostState.SUSPECT, last_seen=HOUR - 20 * SECOND)
    scene.now = HOUR + 20 * SECOND
    scene.host("h0", HostState.DRAINING, last_seen=scene.now)
    assert charged(scene, "a", 2 * HOUR) == 20 * HOUR


def test_a_run_that_ended_while_its_host_was_silent_is_charged_to_its_end() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    run = scene.run("j")
    scene.now = HOUR
    scene.host("h0", HostState.SUSPECT, last_seen=HOUR - 20 * SECOND)
    scene.exit(run, at=HOUR - 5 * SECOND)
    assert charged(scene, "a", 2 * HOUR) == 10 * (HOUR - 5 * SECOND)


def test_a_run_that_is_assigned_to_a_silent_host_is_charged_to_its_start() -> None:
    scene = Scene(HALVES)
    scene.now = HOUR
    scene.host("h0", HostState.SUSPECT, last_seen=HOUR - 20 * SECOND)
    scene.job("j", "a")
    scene.run("j")
    assert charged(scene, "a", 2 * HOUR) == 0


def test_a_lost_host_s_run_stops_for_good_and_the_rest_of_the_gang_goes_on() -> None:
    """Also when the host comes back: its run was given up, its books are closed at the last sign of life."""
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=5, replicas=2)
    run = scene.run("j", hosts=("h0", "h1"))
    seen = HOUR - 20 * SECOND
    scene.now = HOUR
    scene.host("h1", HostState.SUSPECT, last_seen=seen)
    scene.now = HOUR + 5 * MINUTE
    scene.host("h1", HostState.LOST, last_seen=seen)
    scene.exit(run, only=0)
    scene.end(run, EndCause.HOST_LOST)
    scene.now = 2 * HOUR
    scene.host("h1", HostState.HEALTHY, last_seen=scene.now)
    scene.exit(run, only=1)
    assert charged(scene, "a", 3 * HOUR) == 5 * (HOUR + 5 * MINUTE) + 5 * seen


def test_a_refund_takes_back_what_was_held_since_the_checkpoint_when_it_was_held() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=5, replicas=2)
    run = scene.run("j", hosts=("h0", "h1"))
    scene.now = 2 * HOUR
    scene.exit(run, only=0)
    scene.now = 3 * HOUR
    scene.exit(run, only=1)
    scene.end(run, EndCause.HOST_LOST)
    scene.charge(run, charged=10 * HOUR, refunded=5 * HOUR + 10 * HOUR, since=HOUR, until=3 * HOUR)
    assert charged(scene, "a", 4 * HOUR) == 10 * HOUR
    assert charged(scene, "a", WEEK + HOUR // 2) == 10 * HOUR // 2
    assert charged(scene, "a", WEEK + HOUR) == 0, "what was refunded leaves the window with what it took back"


def test_a_refund_whose_spans_are_not_known_here_is_exact_in_sum() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10)
    run = scene.run("j")
    scene.now = 3 * HOUR
    scene.exit(run)
    scene.end(run, EndCause.HOST_LOST)
    scene.charge(run, charged=0, refunded=12_345_677, since=HOUR, until=2 * HOUR)
    assert charged(scene, "a", 4 * HOUR) == 30 * HOUR - 12_345_677


def test_a_report_that_comes_twice_or_too_late_counts_once() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    run = scene.run("j")
    scene.now = HOUR
    scene.start(run)
    scene.exit(run)
    scene.now = 2 * HOUR
    scene.exit(run)
    scene.end(run)
    scene.exit(run)
    assert charged(scene, "a", 3 * HOUR) == 10 * HOUR


def test_commitment_is_whole_until_the_start_and_then_what_is_left_of_the_protection() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10, min_runtime_ms=2 * HOUR)
    assert committed(scene, "a", 0) == 0
    run = scene.assign("j")
    assert committed(scene, "a", HOUR) == 20 * HOUR
    scene.start(run)
    assert [committed(scene, "a", HOUR + hours * HOUR) for hours in (0, 1, 2, 3)] == [20 * HOUR, 10 * HOUR, 0, 0]


def test_charge_and_commitment_together_are_what_was_promised_while_it_is_protected() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10, min_runtime_ms=2 * HOUR)
    scene.run("j")
    assert {scene.standing("a", minutes * MINUTE).used_gpu_ms for minutes in range(0, 121, 7)} == {20 * HOUR}


def test_an_early_end_gives_the_commitment_back() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10, min_runtime_ms=8 * HOUR)
    run = scene.run("j")
    scene.now = HOUR
    scene.complete(run)
    assert committed(scene, "a", HOUR) == 0


def test_a_reservation_counts_whole_from_when_it_is_made_and_once() -> None:
    """P8: until it is dropped, or the job starts and counts itself."""
    scene = Scene(HALVES)
    scene.job("gang", "a", gpus=10, replicas=4)
    scene.reserve("gang")
    scene.reserve("gang")
    assert committed(scene, "a", 0) == 40 * HOUR
    scene.drop("gang")
    assert committed(scene, "a", 0) == 0
    scene.reserve("gang")
    scene.run("gang")
    scene.drop("gang")
    assert committed(scene, "a", 0) == 40 * HOUR


def test_a_reserved_job_that_is_cancelled_commits_nothing() -> None:
    scene = Scene(HALVES)
    scene.job("gang", "a")
    scene.reserve("gang")
    scene.finish("gang", JobState.CANCELLED)
    scene.drop("gang")
    assert committed(scene, "a", 0) == 0


def test_hours_ahead_and_behind_are_said_in_gpu_time() -> None:
    """S76: people read a number of hours, not a factor: 60 GPU-hours of 50 are 10 ahead, none are 50 behind."""
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=60)
    scene.run("j")
    assert scene.standing("a", HOUR).ahead_gpu_ms == 10 * HOUR
    assert scene.standing("b", HOUR).ahead_gpu_ms == -50 * HOUR


def test_books_of_the_past_do_not_grow() -> None:
    """A budget that is no longer used is forgotten after the window, its users too."""
    scene = Scene({"a": 50, "b": 50, "c": 0})
    for number in range(40):
        scene.now = number * DAY
        scene.job(f"j{number}", "a", user=f"u{number}")
        run = scene.run(f"j{number}")
        scene.now += HOUR
        scene.complete(run)
    scene.actor.fold()
    state = scene.actor.state
    assert len(state.ledger.users) <= 9
    assert not state.runs and not state.jobs
    assert len(scene.actor.role.dump(state)) < 4_000
