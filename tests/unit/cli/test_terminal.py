"""Tables on wide and narrow terminals, words for numbers, and the live queue on a real pseudo-terminal."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tenure.cli import words
from tenure.cli.terminal import Column, Table, as_plain, as_rich, cell, clean, fit
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND
from tenure.v1 import jobs_pb2
from tests.unit.cli.canned import NOW, Canned

COLUMNS = (
    Column(title="ID"),
    Column(title="NAME", drop=2, least=8),
    Column(title="NOTE", drop=1),
    Column(title="N", right=True),
)


def table(*, name: str = "a-rather-long-name", note: str = "noted") -> Table:
    return Table(columns=COLUMNS, rows=[[cell("j1"), cell(name), cell(note), cell(7)]])


def titles(width: int, shown: Table) -> list[str]:
    return [column.title for column in fit(shown, width).columns]


def test_what_fits_stays() -> None:
    assert titles(2 + 2 + 18 + 2 + 5 + 2 + 1, table()) == ["ID", "NAME", "NOTE", "N"]


def test_an_empty_column_goes_before_anything_is_cut() -> None:
    assert titles(30, table(note="")) == ["ID", "NAME", "N"]
    assert titles(80, table(note="")) == ["ID", "NAME", "NOTE", "N"]


def test_values_are_cut_before_columns_go_and_some_never_go() -> None:
    assert titles(22, table()) == ["ID", "NAME", "NOTE", "N"]
    assert titles(21, table()) == ["ID", "NOTE", "N"]
    assert titles(3, table()) == ["ID", "N"]


@pytest.mark.parametrize("width", [10, 22, 25, 32, 200])
def test_a_table_is_never_wider_than_its_terminal(width: int) -> None:
    from rich.console import Console

    out = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    out.print(as_rich(table(), width))
    assert all(len(line) <= width for line in out.export_text().splitlines())


def test_without_a_terminal_nothing_is_cut() -> None:
    assert as_plain(table()) == [
        "ID  NAME                NOTE   N",
        "j1  a-rather-long-name  noted  7",
    ]


def test_markup_and_control_characters_are_shown() -> None:
    assert clean("[b]\x1b]0;x\x07\u202e é") == "[b]\\x1b]0;x\\x07\\u202e é"


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59_999, "59s"),
        (MINUTE, "1m"),
        (HOUR + 2 * MINUTE + 3 * SECOND, "1h2m"),
        (3 * DAY + 4 * HOUR + MINUTE, "3d4h"),
    ],
)
def test_ages_have_two_units_at_most(length: int, text: str) -> None:
    assert words.age(length) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("waited_ms", "90000", "1m30s"),
        ("held_gpu_ms", "3600000", "1.0 GPU-h"),
        ("held_gpu_ms", "-90000", "-1.5 GPU-min"),
        ("ratio", "0.42", "0.42"),
        ("gpus", "8", "8"),
        ("host", "h000", "h000"),
        ("protected", "true", "true"),
    ],
)
def test_a_number_is_shown_in_the_unit_of_its_name(name: str, value: str, text: str) -> None:
    assert words.numbers({name: value}) == f"{name} {text}"


def test_an_instant_among_the_numbers_is_a_time() -> None:
    assert ":" in words.numbers({"protected_until": str(words.now_ms())})


def test_times_for_programs_are_utc_with_milliseconds() -> None:
    assert words.iso(NOW + 5) == "2026-09-21T14:13:20.005Z"
    assert words.iso(0) is None


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_the_live_queue_ends_quietly_with_ctrl_c(gateway: Canned, terminal: tuple[int, int]) -> None:
    spec = jobs_pb2.JobSpec(budget="a", user="ana", replicas=1, gpus_per_replica=1, name="[red]fold")
    gateway.jobs = [jobs_pb2.Job(job_id="j1", state="running", spec=spec, submitted_at_ms=NOW)]
    ours, theirs = terminal
    heed = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored where the tests run in the background
    code = f"import signal, sys; {heed}; from tenure.cli.main import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "queue", "--watch", "--every", "0.1"],
        env={**os.environ, "TENURE_SERVER": gateway.address, "TERM": "xterm", "COLUMNS": "120", "LINES": "20"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"[red]fold") < 3:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in seen:  # back from the other screen
            seen += os.read(ours, 65536)
        assert process.stderr is not None
        assert process.wait(20) == 130 and process.stderr.read() == b""
