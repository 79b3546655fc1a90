"""When a log line was written: the stamps of dmesg, journalctl, syslog and /dev/kmsg."""

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from tenure.domain.units import SECOND, Millis

_CLASSIC = "%a %b %d %H:%M:%S %Y"
_ISO = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?(Z|[+-]\d\d:?\d\d)?")
_SINCE_BOOT = re.compile(rb"(?:<\d+>)?\[\s*(\d{1,10})\.(\d{1,6})\]")
_BRACKETED = re.compile(rb"\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]")
_KMSG = re.compile(rb"(\d{1,5}),\d+,(\d{1,18}),[^;]*;")
_HEAD = 80
"""Bytes at the start of a line in which its stamp is looked for."""


def stamp(line: bytes, *, booted_at: Millis | None, zone: tzinfo = UTC) -> Millis | None:
    """The instant at the start of `line`, or None: it has no stamp, or one without a year.

    Stamps without a zone are of `zone`; those counted from the boot need `booted_at` (epoch ms).
    """
    head = line[:_HEAD]
    if line[:1] == b"[":
        since = _SINCE_BOOT.match(head)
        if since is not None:
            return None if booted_at is None else booted_at + _since_boot(since)
        bracketed = _BRACKETED.match(head)
        if bracketed is not None:
            return parse_classic(bracketed.group(1).decode(), zone=zone)
    iso = _ISO.search(head) if b"T" in head else None
    if iso is not None:
        second, fraction, offset = iso.groups()
        at = _whole_second(second, offset, zone)
        return at if at is None or fraction is None else at + int(fraction[:3].ljust(3, b"0"))
    kmsg = _KMSG.match(head) if head[:1].isdigit() else None
    if kmsg is not None:
        return None if booted_at is None else booted_at + int(kmsg.group(2)) // 1000
    if b"[" not in head:
        return None
    since = _SINCE_BOOT.search(head)
    if since is not None:
        return None if booted_at is None else booted_at + _since_boot(since)
    bracketed = _BRACKETED.search(head)
    return None if bracketed is None else parse_classic(bracketed.group(1).decode(), zone=zone)


def _since_boot(match: re.Match[bytes]) -> Millis:
    whole, fraction = match.groups()
    return int(whole) * SECOND + int(fraction[:3].ljust(3, b"0"))


def is_kernel(line: bytes) -> bool:
    """Whether the line's facility, where it has one, is the kernel: others may say what they like."""
    first = line[:1]
    if first == b"[":
        return True
    if first.isdigit():
        kmsg = _KMSG.match(line)
        return kmsg is None or int(kmsg.group(1)) >> 3 == 0
    return line[:9].partition(b":")[0].strip() not in _OTHERS


@lru_cache(maxsize=64)
def parse_classic(text: str, *, zone: tzinfo = UTC, layout: str = _CLASSIC) -> Millis | None:
    """`Sun Feb 23 16:24:18 2025`, or None."""
    try:
        return _epoch_ms(datetime.strptime(text, layout).replace(tzinfo=zone))
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _whole_second(second: bytes, offset: bytes | None, zone: tzinfo) -> Millis | None:
    """Remembered, because the lines of a storm share their seconds."""
    try:
        instant = datetime.fromisoformat((second + (offset or b"")).decode())
    except ValueError:
        return None
    return _epoch_ms(instant if instant.tzinfo is not None else instant.replace(tzinfo=zone))


def _epoch_ms(instant: datetime) -> Millis | None:
    try:
        return Millis(int(instant.timestamp() * SECOND))
    except (ValueError, OverflowError):
        return None


_OTHERS = frozenset(
    (b"user", b"daemon", b"auth", b"syslog", b"mail", b"lpr", b"news", b"uucp", b"cron", b"authpriv", b"ftp")
)
"""Facilities as `dmesg --decode` writes them, without the kernel's."""
