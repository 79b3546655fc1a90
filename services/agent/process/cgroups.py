"""A control group for each replica, where this host has them (cgroup v2): limits, and one stroke that ends all of it.

The keeper is no member, the command and all that comes from it are; nothing gets out of it. Standard library only.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
# ruff: noqa: PTH102, PTH106, PTH110, PTH118, PTH123
import contextlib
import os
import time

GONE_S, _LOOK_S = 5.0, 0.01
CONTROLLERS = ("memory", "pids")


def make(path: str, *, memory_bytes_max: int, pids_max: int) -> None:
    """Make the group of one replica. 0: no limit. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    for name, most in (("memory.max", memory_bytes_max), ("pids.max", pids_max)):
        if most:
            _write(os.path.join(path, name), str(most))
    if memory_bytes_max:
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            _write(os.path.join(path, "memory.swap.max"), "0")
        _write(os.path.join(path, "memory.oom.group"), "1")


def enter(path: str) -> None:
    """Become a member. Raises OSError."""
    _write(os.path.join(path, "cgroup.procs"), "0")


def kill(path: str) -> None:
    """SIGKILL every member at once, whoever its parent or user is."""
    with contextlib.suppress(OSError):
        _write(os.path.join(path, "cgroup.kill"), "1")


def remove(path: str) -> None:
    """Remove the group when its last member is gone; one stuck in the kernel is waited for, but not for ever."""
    give_up_at_s = time.monotonic() + GONE_S
    while time.monotonic() < give_up_at_s:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:  # busy: somebody is in it
            kill(path)
            time.sleep(_LOOK_S)
        else:
            return


def parent_for(name: str, *, limits: bool) -> str:
    """A group of our own below the one this process is in, for those of replicas. Raises OSError where there is none.

    With `limits` this process moves into a leaf beside it, since a group with members can limit no others.
    """
    own = _own_group()
    parent = os.path.join(own, name)
    with contextlib.suppress(FileExistsError):
        os.mkdir(parent, 0o755)
    if not os.path.exists(os.path.join(parent, "cgroup.kill")):
        raise OSError(f"{parent} is no cgroup of version 2 with cgroup.kill (Linux 5.14)")
    if limits:
        leaf = os.path.join(own, f"{name}-agent")
        with contextlib.suppress(FileExistsError):
            os.mkdir(leaf, 0o755)
        enter(leaf)
        for folder in (own, parent):
            _write(os.path.join(folder, "cgroup.subtree_control"), " ".join(f"+{each}" for each in CONTROLLERS))
    return parent


def _own_group() -> str:
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = [line.rstrip("\n").partition("0::")[2] for line in file if line.startswith("0::")]
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = [line.split(" ")[1] for line in file if line.split(" ")[2] == "cgroup2"]
    if not paths or not mounts:
        raise OSError("this host has no cgroups of version 2")
    return os.path.join(mounts[0], paths[0].lstrip("/"))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
