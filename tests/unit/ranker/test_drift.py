"""Where the books and the database can be compared, and what the comparison says."""

import asyncio
import json
from pathlib import Path
from typing import cast

from services.ranker.decider import role
from services.ranker.drift import DriftCheck
from services.ranker.policy.drift import Drift, comparable_until, compare, is_forgotten
from services.ranker.window import Away, Database, Known, Window
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, Position, RunId, UserName
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis
from tenure.runtime.loop import Loop
from tests.unit.ranker.scene import Scene

HALVES = {"a": 50, "b": 50}
SETTLE = 20 * SECOND
H0 = HostId("h0")


def until(scene: Scene, *, known_at: Millis, **reported: Millis) -> Millis:
    """`comparable_until` of the scene's state; `reported` by job, of its first run on h0."""
    scene.actor.fold()
    known = {(H0, RunId(f"{job}.1")): when for job, when in reported.items()}
    return comparable_until(scene.actor.state, reported=known, known_at=known_at, settle_ms=SETTLE)


def test_up_to_what_every_running_run_has_reported() -> None:
    scene = Scene(HALVES)
    for job in ("j", "k"):
        scene.job(job, "a")
        scene.run(job)
    assert until(scene, known_at=HOUR, j=50 * MINUTE, k=40 * MINUTE) == 40 * MINUTE - SETTLE


def test_not_beyond_the_start_of_a_run_that_has_not_reported() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.now = 30 * MINUTE
    scene.run("j")
    assert until(scene, known_at=HOUR) == 30 * MINUTE - SETTLE


def test_not_beyond_what_the_database_knows() -> None:
    assert until(Scene(HALVES), known_at=HOUR) == HOUR - SETTLE


def test_a_suspect_host_may_still_report_a_lost_one_is_not_waited_for() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.run("j")
    scene.now = HOUR
    scene.host("h0", HostState.SUSPECT, last_seen=50 * MINUTE)
    assert until(scene, known_at=HOUR, j=45 * MINUTE) == 50 * MINUTE - SETTLE
    scene.host("h0", HostState.LOST, last_seen=50 * MINUTE)
    assert until(scene, known_at=HOUR, j=45 * MINUTE) == HOUR - SETTLE


def test_unallocated_runs_are_not_waited_for() -> None:
    scene = Scene(HALVES)
    scene.job("free", "a", min_runtime_ms=0)
    scene.run("free")
    assert until(scene, known_at=HOUR) == HOUR - SETTLE


def test_both_sides_are_summed_by_budget() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10)
    scene.run("j")
    scene.actor.fold()
    found = {
        (BudgetPath("a"), UserName("u")): 9 * HOUR,
        (BudgetPath("a"), UserName("v")): HOUR,
        (BudgetPath("gone"), UserName("u")): 5,
    }
    assert compare(scene.actor.state, found, since=0, until=HOUR) == {
        "a": Drift(books_gpu_ms=10 * HOUR, database_gpu_ms=10 * HOUR),
        "gone": Drift(books_gpu_ms=0, database_gpu_ms=5),
    }
    assert Drift(books_gpu_ms=0, database_gpu_ms=5).drift_gpu_ms == -5


class Told:
    """A database that answers what it was told to."""

    def __init__(self, known: Known | None, window: Window) -> None:
        self._known, self._window = known, window

    def known(self) -> Known:
        """See `Database.known`."""
        if self._known is None:
            raise Away("Connection refused")
        return self._known

    def window(self, *, since_ms: Millis, until_ms: Millis, position: Position) -> Window:
        """See `Database.window`."""
        assert self._known is not None and position == self._known.position
        return self._window


class Now:
    """A clock that stands."""

    def __init__(self, at: Millis) -> None:
        self._at = at

    def now(self) -> Millis:
        """See `Clock.now`."""
        return self._at


def checked(scene: Scene, database: Told, *, at: Millis, file: Path) -> dict[str, object]:
    """One comparison with a loop that has folded the scene's log."""

    async def check() -> dict[str, object]:
        clock = Now(at)
        loop = Loop(role(scene.policy), scene.log, clock, cluster="test")
        stop = asyncio.Event()
        running = asyncio.create_task(loop.run(stop))
        await loop.caught_up.wait()
        given = cast(Database, database)
        report = await DriftCheck(loop, scene.log, given, clock=clock, file=file).check()
        stop.set()
        await running
        return report

    return asyncio.run(check())


def busy() -> Scene:
    """One run of 10 GPUs since 0."""
    scene = Scene(HALVES)
    scene.job("j", "a", gpus=10)
    scene.run("j")
    return scene


def test_the_report_is_written_with_every_budget(tmp_path: Path) -> None:
    known = Known(position=Position(5), at=HOUR, reported={(H0, RunId("j.1")): HOUR})
    database = Told(known, {(BudgetPath("a"), UserName("u")): 10 * (HOUR - SETTLE) - 3})
    report = checked(busy(), database, at=HOUR + MINUTE, file=tmp_path / "ranker" / "drift.json")
    assert json.loads((tmp_path / "ranker" / "drift.json").read_text()) == report
    assert report["status"] == "compared"
    assert report["until_ms"] == HOUR - SETTLE
    assert report["drift_gpu_ms"] == 3
    assert report["budgets"] == {
        "a": {
            "books_gpu_ms": 10 * (HOUR - SETTLE),
            "database_gpu_ms": 10 * (HOUR - SETTLE) - 3,
            "drift_gpu_ms": 3,
        }
    }


def test_a_database_that_is_away_changes_nothing_and_is_said(tmp_path: Path) -> None:
    """S54: the order goes on from the log; history is not treated as missing."""
    scene = busy()
    report = checked(scene, Told(None, {}), at=HOUR, file=tmp_path / "drift.json")
    assert (report["status"], report["reason"]) == ("away", "Connection refused")
    scene.job("a1", "a")
    scene.job("b1", "b")
    assert scene.order(HOUR) == ["b1", "a1"]


def test_a_database_that_lags_is_behind_not_different(tmp_path: Path) -> None:
    known = Known(position=Position(5), at=HOUR, reported={(H0, RunId("j.1")): HOUR})
    report = checked(busy(), Told(known, {}), at=HOUR + 20 * MINUTE, file=tmp_path / "drift.json")
    assert report["status"] == "behind"
    assert "drift_gpu_ms" not in report


def test_what_is_forgotten_cannot_be_compared() -> None:
    scene = Scene(HALVES)
    scene.now = 20 * DAY
    scene.job("j", "a")
    scene.now = 21 * DAY
    scene.job("k", "a")
    scene.actor.fold()
    assert is_forgotten(scene.actor.state, 13 * DAY)
    assert not is_forgotten(scene.actor.state, 14 * DAY)


def test_a_report_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "ranker").write_text("a file where a folder should be")
    report = checked(busy(), Told(None, {}), at=HOUR, file=tmp_path / "ranker" / "drift.json")
    assert report["status"] == "away"
