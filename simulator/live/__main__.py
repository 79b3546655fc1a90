"""`python -m simulator.live ...`: the forecast's process. `tenure serve forecast` becomes it."""

import sys

from simulator.live.shell import main
from tenure.runtime.heaps import share_heaps
from tenure.runtime.orphan import obey_environment

if __name__ == "__main__":
    obey_environment()
    share_heaps()
    sys.exit(main(sys.argv[1:]))
