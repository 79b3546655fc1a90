"""The data directory: who owns it, what it refuses, what the next `up` reads of it; and its rotating logs."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import ChildRecord, DataDir, Endpoint
from tenure.runtime.rotating_log import RotatingLog


def endpoint(root: Path) -> Endpoint:
    return Endpoint(address="127.0.0.1:7733", pid=42, data=str(root))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = DataDir(tmp_path / "data")
    directory.prepare()
    return directory


def test_only_one_owns_it_and_the_other_learns_where_it_is(directory: DataDir) -> None:
    directory.own()
    other = DataDir(directory.root)
    with pytest.raises(Refusal, match=r"in use by a running tenure up \(it is just starting\)"):
        other.own()
    directory.write_endpoint(endpoint(directory.root))
    with pytest.raises(Refusal, match=r"pid 42, 127.0.0.1:7733"):
        other.own()
    directory.release()
    other.own()
    other.release()


def test_an_orderly_end_leaves_no_trace_for_the_next_one(directory: DataDir) -> None:
    directory.own()
    directory.write_endpoint(endpoint(directory.root))
    directory.write_children({"a": ChildRecord(name="a", pid=1, start_ticks=25, boot_id="b")})
    assert directory.endpoint() == endpoint(directory.root)
    assert [(child.name, child.start_ticks) for child in directory.children()] == [("a", 25)]
    directory.release()
    assert directory.endpoint() is None and directory.children() == []


def test_a_damaged_record_is_no_record(directory: DataDir) -> None:
    directory.endpoint_file.write_text('{"address": 7')
    directory.children_file.write_bytes(b"\xff")
    assert directory.endpoint() is None and directory.children() == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match=r"Not a directory; name a directory that you may write with --data"):
        DataDir(tmp_path / "file" / "data").prepare()


def test_a_disk_that_is_nearly_full_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"only \d+ MB free; free at least \d+ MB or choose another disk"):
        DataDir(tmp_path / "data").prepare(free_bytes_min=1 << 62)


def test_a_log_starts_afresh_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = RotatingLog(path, size_max=10, kept=3)
    for text in (b"first---", b"second--", b"third---", b"fourth--", b"!"):
        log.write(text)
    log.close()
    assert path.read_bytes() == b"fourth--!"
    assert (tmp_path / "x.log.1").read_bytes() == b"third---"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]


def test_a_log_goes_on_where_an_earlier_one_stopped(tmp_path: Path) -> None:
    for text in (b"one ", b"two"):
        log = RotatingLog(tmp_path / "x.log", size_max=7)
        log.write(text)
        log.close()
    assert (tmp_path / "x.log").read_bytes() == b"one two"
