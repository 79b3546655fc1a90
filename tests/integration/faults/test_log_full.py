"""The disk under the log is full: nothing is acknowledged that was not written, and runs go on.

A small file system of its own (tmpfs) where the kernel lets us mount one. The log's own size limit, which is met first
where it is set as `deploy/nats` says, is tested in `tests/contract/test_log_jetstream.py`.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import lab

pytestmark = pytest.mark.timeout(300)

SIZE = "128m"
"""The server keeps a part back; the smallest log takes 64 MiB."""


def test_the_disk_under_the_log_is_full_and_then_has_room_again(tmp_path: Path) -> None:
    store = tmp_path / "nats" / "store"
    with small_disk(store), lab(tmp_path) as each:
        with each.load(seed=7) as load:
            load.more(20)
            filler = fill(store)
            ended = len(load.marked("ended"))
            each.roles.until(lambda: load.trouble or None, what="a submission that is not acknowledged")
            each.roles.until(lambda: len(load.marked("ended")) > ended or None, what="the end of a run meanwhile")
            filler.unlink()
            each.kill("nats")  # a server that has met a full disk takes nothing until it is started again
            each.again("nats")
            load.more(20)
        check_aftermath(each, load)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of `SIZE` at this folder. Skips the test where that is not permitted."""
    folder.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"needs a file system of its own: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is. Returns the file that took it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return filler
