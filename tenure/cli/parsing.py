"""How command-line values are read. Each parser says in one line what is wrong; typer adds the option's name."""

from datetime import datetime

import typer

from tenure.cli.words import now_ms
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis, parse_duration

INT64_MAX = 2**63 - 1
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIALS")
_INSTEAD = "have the job read a file of yours (docs/security.md)"


def duration(text: str | Millis) -> Millis:
    """Milliseconds of `90s`, `15m`, `8h`, `7d` or `0`; typer passes a default, a number already, through here too."""
    if isinstance(text, int):
        return text
    try:
        return parse_duration(text, field="")
    except Refusal as refusal:
        raise typer.BadParameter(f"{refusal.problem}; {refusal.fix}") from refusal


def instant(text: str | Millis) -> Millis:
    """An instant in epoch milliseconds: so long from now (`8h`), or a date and time (`2026-12-01T22:00`, local)."""
    if isinstance(text, int):
        return text
    try:
        return now_ms() + parse_duration(text, field="")
    except Refusal:
        pass
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write 8h, or 2026-12-01T22:00") from error


def whole_number(text: str | int) -> int:
    """An integer that fits the wire; what is sensible is the gateway's to say."""
    if isinstance(text, int):
        return text
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"{text[:40]!r} is not a whole number; write one such as 8") from None
    if not -INT64_MAX <= number <= INT64_MAX:
        raise typer.BadParameter(f"{text[:40]!r} is out of range; write a whole number such as 8")
    return number


def environment(settings: list[str]) -> dict[str, str]:
    """`K=V` settings as a mapping; `K` alone takes the caller's value. Warns of what looks like a secret."""
    import os

    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or (not equals and name not in os.environ):
            hint = "'--env'"
            raise typer.BadParameter(f"{setting[:60]!r} is not a setting; write NAME=VALUE", param_hint=hint)
        values[name] = value if equals else os.environ[name]
        if any(word in _SECRETS for word in name.upper().split("_")):
            typer.echo(f"{name} looks like a secret, and everybody who may look can read it: {_INSTEAD}", err=True)
    return values


def names(lists: list[str]) -> list[str]:
    """The names in some lists with commas."""
    return [name.strip() for some in lists for name in some.split(",") if name.strip()]


def shares(settings: list[str]) -> dict[str, float]:
    """`PATH=PERCENT` settings as a mapping."""
    values: dict[str, float] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        try:
            percent = float(text.strip().removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not path or not equals or not 0 <= percent <= 100:
            problem = f"{setting[:80]!r} is not a share; write PATH=PERCENT such as science/chem=45 (0 to 100)"
            raise typer.BadParameter(problem, param_hint="'SHARE'")
        if path in values:
            raise typer.BadParameter(f"{path!r} is given twice; give each budget once", param_hint="'SHARE'")
        values[path] = percent
    return values
