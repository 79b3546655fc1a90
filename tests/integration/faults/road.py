"""Roads between agents and the log's server that can be cut: a network namespace, or a proxy that swallows.

Where the kernel lets us, agents live in a network namespace of their own, and cutting takes the link down: packets are
lost, no connection is closed, new ones are not answered.
"""

import asyncio
import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.contract.breaking_proxy import BreakingProxy

T = TypeVar("T")
_numbers = itertools.count()


class ProxyRoad:
    """A proxy on a thread of its own. `url` is what the far end uses."""

    def __init__(self, target: str, *, address: str = "127.0.0.1") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._proxy = self._do(self._make(target))
        self.url = self._do(self._proxy.start(address=address))

    def cut(self) -> None:
        """Swallow everything."""
        self._tell(self._proxy.cut)

    def mend(self) -> None:
        """Pass on again; what hung for so long is closed."""
        self._tell(self._proxy.break_all)
        self._tell(self._proxy.mend)

    def close(self) -> None:
        """End the proxy."""
        self._do(self._proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _make(self, target: str) -> BreakingProxy:
        return BreakingProxy(target)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _tell(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)


class Namespace:
    """A network namespace joined to ours by one link. Processes in it are started with `inside` before the command."""

    def __init__(self) -> None:
        """Raises CalledProcessError where it is not permitted."""
        number = next(_numbers)
        self.name = f"tenure{os.getpid()}n{number}"
        self._near, self._far = f"tn{os.getpid()}n{number}", f"tf{os.getpid()}n{number}"
        network = f"10.{200 + number % 50}.{os.getpid() % 250}"
        self.near_address = f"{network}.1"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
            ip("link", "set", self._far, "netns", self.name)
            ip("address", "add", f"{network}.1/24", "dev", self._near)
            ip("link", "set", self._near, "up")
            ip("-n", self.name, "address", "add", f"{network}.2/24", "dev", self._far)
            ip("-n", self.name, "link", "set", self._far, "up")
            ip("-n", self.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command is given to."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Take the link down."""
        ip("link", "set", self._near, "down")

    def mend(self) -> None:
        """Take it up again."""
        ip("link", "set", self._near, "up")

    def close(self) -> None:
        """Remove it; its link goes with it."""
        ip("netns", "delete", self.name)


@contextmanager
def namespace() -> Iterator[Namespace | None]:
    """A namespace, or None where the kernel does not let us have one."""
    try:
        made = Namespace()
    except (subprocess.CalledProcessError, FileNotFoundError):
        yield None
        return
    try:
        yield made
    finally:
        made.close()


def ip(*words: str) -> None:
    """Run `ip`. Raises CalledProcessError."""
    subprocess.run(("ip", *words), check=True, capture_output=True)
