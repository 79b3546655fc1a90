"""How many heaps the C library keeps.

glibc gives each thread a heap of its own, and what is freed in one is seldom given back or used by another. A role has
a dozen threads (gRPC, NATS, telemetry) and allocates in parcels that come and go: its memory grows for hours although
nothing is kept (mallopt(3), M_ARENA_MAX).
"""

import ctypes

HEAPS = 2
_M_ARENA_MAX = -8


def share_heaps() -> bool:
    """Let all threads of this process share `HEAPS` heaps. False where the C library knows no such thing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_ARENA_MAX, HEAPS))
