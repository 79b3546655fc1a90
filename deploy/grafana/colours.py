"""Colours that people with any kind of colour vision tell apart (Okabe and Ito), and what they stand for everywhere."""

BLUE, SKY, GREEN, ORANGE, RED, PURPLE, YELLOW = (
    "#0072b2",
    "#56b4e9",
    "#009e73",
    "#e69f00",
    "#d55e00",
    "#cc79a7",
    "#f0e442",
)
GREY, PALE = "#8c959f", "#c9ced4"

GOOD, MIDDLING, BAD, NEUTRAL = BLUE, ORANGE, RED, GREY
"""Of thresholds. Blue is good: green and red cannot be told apart by one man in twelve."""

ALLOCATED, UNALLOCATED, LOST, IDLE, UNAVAILABLE = BLUE, SKY, RED, PALE, GREY
"""What became of GPU-time."""

Steps = tuple[tuple[float | None, str], ...]
"""From which value on (None: from the lowest) which colour."""

SHARE_OF_ONE: Steps = ((None, BAD), (0.90, MIDDLING), (0.95, GOOD))
PLAIN: Steps = ((None, NEUTRAL),)
"""A number that is neither good nor bad."""


def at_most(middling: float, bad: float) -> Steps:
    """Good is little."""
    return ((None, GOOD), (middling, MIDDLING), (bad, BAD))


def at_least(middling: float, good: float) -> Steps:
    """Good is much."""
    return ((None, BAD), (middling, MIDDLING), (good, GOOD))
