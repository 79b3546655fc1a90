"""`python -m services ROLE ...`: one role's process. Only that role is imported."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from tenure.runtime.heaps import share_heaps
from tenure.runtime.orphan import obey_environment

ROLES = tuple(sorted(shell.parent.name for shell in Path(__file__).parent.glob("*/shell.py")))
SERVED = tuple(sorted((*ROLES, "forecast")))
"""All that `tenure serve` starts: the forecast lives in the folder of the simulator, and is started from there."""


def main(arguments: Sequence[str]) -> int:
    """Run the role named first with the rest of the arguments; returns the exit status."""
    role, own = (arguments[0], arguments[1:]) if arguments else ("", ())
    if role not in ROLES:
        problem = f"{role!r} is not a role" if role else "no role given"
        print(f"tenure serve: {problem}; the roles are {', '.join(SERVED)}", file=sys.stderr)
        return 2
    obey_environment()
    share_heaps()
    shell = importlib.import_module(f"services.{role}.shell")
    status: int = shell.main(list(own))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
