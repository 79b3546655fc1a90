"""A resumable job: counts to a goal, saves its progress on SIGTERM, carries on where it was.

    python counter.py GOAL          counts 10 a second

The contract in short: save into TENURE_CHECKPOINT_DIR when told to stop, then exit with anything but 0 (0 means done).
"""

import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    """Count from the checkpoint, or from 0, to the goal."""
    goal = int(sys.argv[1])
    rank = os.environ["RANK"]
    checkpoint = Path(os.environ["TENURE_CHECKPOINT_DIR"]) / f"count-{rank}"
    count = int(checkpoint.read_text()) if checkpoint.exists() else 0
    print(f"run {os.environ['TENURE_RUN_ID']}: counting from {count} to {goal}", flush=True)

    def save_and_go(_signal: int, _frame: object) -> None:
        fresh = checkpoint.with_suffix(".new")
        fresh.write_text(str(count))
        fresh.replace(checkpoint)
        print(f"told to stop: saved at {count}", flush=True)
        sys.exit(143)

    signal.signal(signal.SIGTERM, save_and_go)
    while count < goal:
        time.sleep(0.1)
        count += 1
    print(f"done at {count}", flush=True)


if __name__ == "__main__":
    main()
