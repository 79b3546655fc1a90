"""Lengths of time and parts of a whole as people read them."""


def duration(seconds: float) -> str:
    """`0.2 s`, `45 s`, `12 min`, `3.4 h`, `2.5 d`: three digits of the unit that suits."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 3_600), ("h", 3_600, 172_800)):
        if seconds < most:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def percent(part: float) -> str:
    """`99.5 %`."""
    return f"{part * 100:.1f} %"
