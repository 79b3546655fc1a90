"""How long jobs waited, by class: from submission to the first start (design, section 6)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simulator.pictures.history import History, Ints
from simulator.pictures.stretch import Stretch
from tenure.domain.units import MINUTE

DEBUG_GPUS_MAX = 8
DEBUG_MIN_RUNTIME_MAX = 15 * MINUTE
QUANTILES = (50, 90, 99, 100)


def waits(history: History, *, stretch: Stretch, kinds: Mapping[str, str]) -> dict[str, Ints]:
    """Milliseconds waited, sorted, of each class that has jobs: all, debug, largest, then each kind in order of name.

    Over jobs submitted inside the stretch but for its end (`Stretch.last_submission`); a job that never started counts
    until the end of the stretch. `kinds`: the kind of each job, where it has one.
    """
    jobs = history.jobs
    never = (jobs.first_start < 0) | (jobs.first_start > stretch.end)
    waited = np.where(never, stretch.end, jobs.first_start) - jobs.submitted
    asked = (jobs.submitted >= stretch.start) & (jobs.submitted <= stretch.last_submission)
    allocated = jobs.min_runtime > 0
    classes: dict[str, NDArray[np.bool_]] = {
        "all": np.ones(len(jobs.ids), dtype=np.bool_),
        "debug": allocated & (jobs.gpus <= DEBUG_GPUS_MAX) & (jobs.min_runtime <= DEBUG_MIN_RUNTIME_MAX),
        "largest": jobs.gpus * 4 >= history.installed,
    }
    kind = np.array([kinds.get(job, "") for job in jobs.ids], dtype=np.str_)
    for name in sorted({*kinds.values()} - {"", *classes}):
        classes[name] = kind == name
    found = {name: np.sort(waited[asked & inside]) for name, inside in classes.items()}
    return {name: lengths for name, lengths in found.items() if len(lengths)}


def quantiles(lengths: Ints) -> tuple[int, ...]:
    """The lengths at `QUANTILES`: the smallest that so many percent do not exceed."""
    places = [max(0, -(-len(lengths) * percent // 100) - 1) for percent in QUANTILES]
    return tuple(int(lengths[place]) for place in places)
