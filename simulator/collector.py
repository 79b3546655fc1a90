"""The collector of cycles at rest: a log is millions of objects and no cycle, and a look at them all costs seconds."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def resting_collector() -> Iterator[None]:
    """Nothing is collected inside; what only counting references cannot free is freed when it works again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
