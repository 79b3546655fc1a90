"""Threads share heaps, as the C library itself says."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.runtime.heaps import HEAPS

PROGRAM = """
import ctypes, sys, threading
from tenure.runtime.heaps import share_heaps
if sys.argv[1] == "shared":
    assert share_heaps()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(16)
def take():
    barrier.wait()
    for _ in range(50):
        libc.malloc(1000)
    barrier.wait()
threads = [threading.Thread(target=take) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
assert libc.malloc_info(0, file) == 0
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no such heaps")
def test_threads_share_heaps(tmp_path: Path) -> None:
    heaps = {}
    for how in ("own", "shared"):
        told = tmp_path / how
        subprocess.run([sys.executable, "-c", PROGRAM, how, str(told)], check=True, timeout=60)
        heaps[how] = len(re.findall(r"<heap ", told.read_text()))
    assert heaps["shared"] <= HEAPS < heaps["own"]
