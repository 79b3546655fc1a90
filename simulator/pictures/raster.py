"""The timeline as an image of pixels: a row for each GPU (or one for several), time from left to right.

Solid where a run is protected, pale with stripes where it may be interrupted, red where it was ended early.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.pictures.history import CAUSES, History
from simulator.pictures.hues import GREY, RED, hues, rgb
from simulator.pictures.stops import EARLY

Pixels = NDArray[np.uint8]
IDLE, UNAVAILABLE = "#f3f4f6", "#c9ced4"
_STRIPE = 6
"""Pixels from one stripe to the next."""
_PALE, _STRIPED = 0.42, 0.85
"""How much of a budget's colour is left between stripes, and in them."""
_EDGE = 2
"""Pixels of a red edge, where the run is wide enough to have one."""


def paint(history: History, *, width: int, height: int) -> Pixels:
    """The picture of a whole log: [height, width, 3] bytes of red, green and blue."""
    picture = _paint_outages(history, width=width, height=height)
    runs, spans = history.runs, history.spans
    rows, end = max(history.installed, 1), max(history.end, 1)
    guard = np.where(runs.charged, np.minimum(runs.protected_until, runs.end), runs.start)
    x0, xg, x1 = (column * width // end for column in (runs.start, guard, runs.end))
    x1 = np.maximum(x1, x0 + 1)
    xg = np.clip(xg, x0, x1)
    edge = np.where(np.isin(runs.cause, [CAUSES.index(cause) for cause in EARLY]), np.clip((x1 - x0) // 3, 1, _EDGE), 0)
    row = history.first_row[spans.host] + spans.first if len(spans.run) else spans.run
    y0 = row * height // rows
    y1 = np.maximum(y0 + 1, (row + spans.count) * height // rows)
    kind = 2 * history.jobs.budget[runs.job] + 2
    red = 2 * len(history.leaves) + 2
    order = np.argsort(runs.start[spans.run], kind="stable")
    of = spans.run[order]
    columns = (y0[order], y1[order], x0[of], xg[of], x1[of], kind[of], edge[of])
    for top, bottom, left, until, right, which, wide in zip(*(c.tolist() for c in columns), strict=True):
        picture[top:bottom, left:until] = which
        picture[top:bottom, until:right] = which + 1
        if wide:
            picture[top:bottom, right - wide : right] = red
    return _coloured(picture, [hue.light for hue in hues(history.leaves)])


def _paint_outages(history: History, *, width: int, height: int) -> NDArray[np.int32]:
    """Numbers of colours: 0 is idle, 1 not available."""
    picture = np.zeros((height, width), dtype=np.int32)
    rows, end, first = max(history.installed, 1), max(history.end, 1), history.first_row
    offers = history.capacity
    for host in np.unique(offers.host).tolist():
        mine = offers.host == host
        at = np.append(offers.at[mine], history.end) * width // end
        top = int(first[host]) * height // rows
        bottom = int(first[host] + history.gpus[host]) * height // rows
        picture[top:bottom, : at[0]] = 1
        for left, right, gpus in zip(at[:-1].tolist(), at[1:].tolist(), offers.gpus[mine].tolist(), strict=True):
            picture[top:bottom, left:right] = 1 if gpus < history.gpus[host] else 0
    return picture


def _coloured(picture: NDArray[np.int32], leaves: Sequence[str]) -> Pixels:
    """Bytes for the numbers: 2 + 2i and 3 + 2i are leaf i, protected and not; the last is red."""
    plain, striped = [rgb(IDLE), rgb(UNAVAILABLE)], [rgb(IDLE), rgb(GREY)]
    for colour in leaves:
        plain += [rgb(colour), _mixed(colour, _PALE)]
        striped += [rgb(colour), _mixed(colour, _STRIPED)]
    plain.append(rgb(RED))
    striped.append(rgb(RED))
    in_stripe = np.add.outer(*(np.arange(pixels, dtype=np.int32) for pixels in picture.shape)) % _STRIPE < 2
    table = np.array([plain, striped], dtype=np.uint8)
    return np.asarray(table[in_stripe.astype(np.intp), picture])


def _mixed(colour: str, part: float) -> tuple[int, int, int]:
    """The colour on a white ground."""
    red, green, blue = (round(byte * part + 255 * (1 - part)) for byte in rgb(colour))
    return red, green, blue
