"""The section `repair:` of a configuration file: the repair plug of this installation."""

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tenure.domain.nearest import unknown_key
from tenure.domain.refusal import Refusal
from tenure.domain.units import MINUTE, Millis, parse_duration

REPAIR = "repair"
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """A command, or a webhook, or neither. Lengths of time in milliseconds."""

    command: tuple[str, ...] = ()
    webhook: str = ""
    secret: bytes = b""
    """Signs what the webhook is sent."""
    time_limit_ms: Millis = 30 * MINUTE
    """One attempt of a command may take so long; a webhook has to answer within a minute of it at most."""
    attempts: int = 5
    """So often something that may pass (a time-out, a 500) is tried, longer and longer apart."""
    test: bool = True
    """A repaired host is tested before it takes runs."""

    @property
    def there(self) -> bool:
        """Whether there is a plug."""
        return bool(self.command or self.webhook)


def build_repair_options(values: Mapping[str, object]) -> RepairOptions:
    """The options from the section as people write it. Raises `Refusal` with the key and the fix."""
    for key in values:
        if key not in READERS:
            raise unknown_key(key, known=READERS, where=REPAIR)
    chosen = {_FIELDS.get(key, key): READERS[key](value, key) for key, value in values.items()}
    options = RepairOptions(**chosen)  # type: ignore[arg-type]
    if options.command and options.webhook:
        raise Refusal(field="repair", problem="both a command and a webhook", fix="keep one of them")
    if options.webhook and not options.secret:
        fix = "name a file with the secret that signs what is sent"
        raise Refusal(field="repair.secret_file", problem="missing beside a webhook", fix=fix)
    return options


def _command(value: object, _key: str) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(word) for word in value)
    try:
        return tuple(shlex.split(str(value)))
    except ValueError as error:
        raise Refusal(field="repair.command", problem=str(error), fix="close the quotes, or write a list") from error


def _webhook(value: object, _key: str) -> str:
    webhook = str(value)
    if webhook and urlsplit(webhook).scheme not in ("http", "https"):
        raise Refusal(field="repair.webhook", problem=f"{webhook[:80]!r} is no web address", fix="write https://...")
    return webhook


def _time_limit(value: object, _key: str) -> Millis:
    time_limit_ms = parse_duration(str(value), field="repair.time_limit")
    if time_limit_ms == 0:
        raise Refusal(field="repair.time_limit", problem="0 leaves no time for it", fix="give a duration, 30m say")
    return time_limit_ms


def _secret(value: object, _key: str) -> bytes:
    path = Path(str(value))
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise Refusal(field="repair.secret_file", problem=problem, fix="name a readable file") from error
    if not secret:
        raise Refusal(field="repair.secret_file", problem=f"{path.name} is empty", fix="write a secret into it")
    return secret


def _attempts(value: object, _key: str) -> int:
    text = str(value)
    if not text.isdigit() or int(text) < 1:
        raise Refusal(field="repair.attempts", problem=f"{text[:20]!r} is no number of attempts", fix="give 1 or more")
    return int(text)


def _truth(value: object, _key: str) -> bool:
    text = str(value).lower()
    if text not in (*_YES, *_NO):
        raise Refusal(field="repair.test", problem=f"{text[:20]!r} is no yes or no", fix="write true or false")
    return text in _YES


READERS: Mapping[str, Callable[[object, str], object]] = {
    "command": _command,
    "webhook": _webhook,
    "secret_file": _secret,
    "time_limit": _time_limit,
    "attempts": _attempts,
    "test": _truth,
}
"""What is made of each key, from its value as people write it and its name."""
_FIELDS = {"secret_file": "secret", "time_limit": "time_limit_ms"}
