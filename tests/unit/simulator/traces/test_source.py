"""Foreign files: damaged, empty or of another kind; cells that say nothing."""

import gzip

import pytest

from simulator.traces.notes import Action, Notes
from simulator.traces.source import Unreadable, WallClock, number, whole
from tenure.domain.refusal import Refusal
from tests.unit.simulator.traces.importing import imported

JOBS = "timestamp,duration,num_gpus,gpu_time,cluster\n" + 50 * "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "philly.txt: the file is empty"),
        (b"\n \n", "philly.txt: the file is empty"),
        (b"duration,num_gpus\n60,1\n", "philly.txt:1: no column timestamp, cluster in the header"),
        (JOBS.splitlines()[0].encode(), "philly.txt: no job is left: no rows"),
        (JOBS.splitlines()[0].encode() + b"\n,60,1,60,vc\n", "no job is left: no submit time (1)"),
        (gzip.compress(JOBS.encode(), mtime=0)[:-20], "broken gzip"),
        (gzip.compress(JOBS.encode(), mtime=0)[:30] + 40 * b"?", "broken gzip"),
    ],
)
def test_files_that_are_no_traces_are_refused(tmp_path, data, message):
    with pytest.raises(Refusal) as caught:
        imported(tmp_path, "philly", data)
    assert message in str(caught.value)


@pytest.mark.parametrize("source", ["openb", "swf"])
def test_seconds_have_no_zone(tmp_path, source):
    with pytest.raises(Refusal, match=r"--timezone: the times of .* have no zone"):
        imported(tmp_path, source, JOBS, timezone="UTC")


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    rows = imported(tmp_path, "philly", JOBS.encode() + b"2017-10-09 07:01:56,66.0,1,66.0,\xff\xfe\0\n").rows
    assert rows[-1].budget == "vc"
    assert len(rows) == 51


@pytest.mark.parametrize("text", ["", " ", "-1", "-1.0", "NA", "n/a", "NaN", "None", "Unknown", "null", "-"])
def test_signs_of_nothing(text):
    assert number(text, what="x") is None
    assert whole(text, what="x") is None


@pytest.mark.parametrize("text", ["x", "1e400", "inf", "-inf", "-2", "1_0x", "٣٣٣٣٣٣٣٣٣٣٣٣٣", 5000 * "9"])
def test_nonsense(text):
    with pytest.raises(Unreadable, match=r"^speed is "):
        whole(text, what="speed")


def test_instants():
    notes = Notes()
    clock = WallClock("America/Los_Angeles", notes=notes)
    read = [
        clock.epoch_s(text, what="t", line=1)
        for text in (
            "2017-10-09 07:01:55",
            "2017-10-09T07:59:59",
            "2017-10-09 07:30",
            "1507557715",
            "2017-10-09T14:01:55Z",
        )
    ]
    assert read == [1507557715, 1507561199, 1507559400, 1507557715, 1507557715]
    assert clock.epoch_s("Unknown", what="t", line=1) is None
    for bad in ("2017-10-09 07:60:00", "2017-13-09 07:00:00", "07:00", "0001-01-01 00:00:00x"):
        with pytest.raises(Unreadable, match=r"^t is not a time"):
            clock.epoch_s(bad, what="t", line=1)
    assert not notes.listing()


def test_notes_are_in_order_and_count():
    notes = Notes()
    for action, why, line in (
        (Action.KEPT, "a", 9), (Action.DROPPED, "b", 8), (Action.DROPPED, "c", 7), (Action.DROPPED, "c", 6),
    ):  # fmt: skip
        notes.add(action, why, line=line)
    assert [(note.action, note.why, note.count, note.first_line) for note in notes.listing()] == [
        ("dropped", "c", 2, 7),
        ("dropped", "b", 1, 8),
        ("kept", "a", 1, 9),
    ]
    assert notes.dropped == 3
