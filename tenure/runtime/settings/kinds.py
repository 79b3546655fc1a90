"""The kinds of values that settings have. Each reader raises `Refusal` with an example of what would be right."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from tenure.domain.names import check_word
from tenure.domain.nearest import did_you_mean, listed, shown, unknown_key
from tenure.domain.policy import CLUSTERS, KNOBS, OF_CLUSTER, RATES, UNIT, check_knob, check_rate, in_words, spoken
from tenure.domain.rates import MILLI, RATE_MOST
from tenure.domain.refusal import Refusal
from tenure.domain.units import parse_duration, parse_size
from tenure.log.access import Access
from tenure.runtime.settings.setting import Kind
from tenure.runtime.telemetry_options import parse_listen
from tenure.runtime.yaml_file import parse_yaml

_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


def read_text(value: object, field: str) -> str:
    """One line of text."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise Refusal(field=field, problem=f"{shown(value)} is no text", fix="write one word, in quotes if need be")
    text = str(value)
    if not text.isprintable():
        raise Refusal(field=field, problem=f"{shown(text)} has characters that cannot be shown", fix="write it plainly")
    return text


def read_truth(value: object, field: str) -> bool:
    """Yes or no."""
    text = str(value).lower()
    if text not in (*_YES, *_NO):
        raise Refusal(field=field, problem=f"{shown(value)} is no yes or no", fix="write true or false")
    return text in _YES


def read_path(value: object, field: str) -> Path:
    """A name of a file or a folder."""
    if not isinstance(value, str | Path) or not str(value).isprintable():
        raise Refusal(field=field, problem=f"{shown(value)} is no name of a file", fix="write a path: /etc/tenure/FILE")
    return Path(value)


def check_readable(path: Path, field: str) -> None:
    """Raise `Refusal` unless the file can be read. Nothing of what is in it is kept or shown."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise Refusal(field=field, problem=problem, fix="name a file that this user may read") from error


def number(least: int, most: int, *, example: str) -> Kind:
    """A whole number between `least` and `most`."""

    def read(value: object, field: str) -> int:
        text = str(value)
        try:
            found = int(text) if len(text) < 20 and not isinstance(value, bool | float) else None
        except ValueError:
            found = None
        if found is None or not least <= found <= most:
            raise Refusal(
                field=field, problem=f"{shown(value)} is no whole number in the range", fix=f"give {least} to {most}"
            )
        return found

    return Kind(name=f"number, {least} to {most}", example=example, read=read, metavar="N")


def read_decimal(value: object, field: str) -> float:
    """A number that need not be whole."""
    try:
        found = float(str(value))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise Refusal(field=field, problem=f"{shown(value)} is no number of 0 or more", fix="write one such as 10.5")
    return found


def choice(*names: str) -> Kind:
    """One of a few words."""

    def read(value: object, field: str) -> str:
        text = str(value)
        if text not in names:
            near = did_you_mean(text, names)
            raise Refusal(field=field, problem=f"{shown(value)} is not known", fix=f"{near}use {listed(names)}")
        return text

    return Kind(name=listed(names[:-1]) + f" or {names[-1]}", example=names[0], read=read, choices=names)


def read_level(value: object, field: str) -> str:
    """The name of a level of log lines."""
    return str(_LEVEL.read(str(value).upper(), field))


def read_web(value: object, field: str) -> str:
    """An address of a web server, without a password in it."""
    text = read_text(value, field)
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        shown_part = text.rpartition("@")[2]
        fix = "write http://host:port[/database]"
        raise Refusal(field=field, problem=f"{shown_part[:80]!r} is no address", fix=fix)
    return text


def read_servers(value: object, field: str) -> str:
    """Addresses of the log's servers, separated by commas."""
    text = read_text(value, field)
    try:
        Access(url=text, insecure=True)
    except Refusal as refusal:
        raise Refusal(field=field, problem=refusal.problem, fix=refusal.fix) from refusal
    return text


def read_knob(name: str, value: object, field: str) -> int | float:
    """A value of the knob whose field of `Policy` is `name`, in its range."""
    found: int | float
    if name.endswith(UNIT):
        found = parse_duration(str(value), field=field)
        if found == 0 and KNOBS[name].least > 0:
            raise Refusal(field=field, problem="0 leaves nothing to work with", fix="give a positive duration")
    else:
        found = _number(name, value, field)
    try:
        check_knob(name, found)
    except Refusal as out:
        raise Refusal(field=field, problem=out.problem, fix=out.fix) from out
    return found


def _number(name: str, value: object, field: str) -> int | float:
    text, whole = str(value), isinstance(KNOBS[name].least, int)
    try:
        found: int | float = int(text) if whole else float(text)
        is_one = 0 <= found < float("inf")
    except (ValueError, OverflowError):
        is_one = False
    if not is_one or isinstance(value, bool):
        raise Refusal(field=field, problem=f"{text[:40]!r} is not a number", fix="give a number of 0 or more")
    return found


def knob_kind(name: str, default: float) -> Kind:
    """The kind of a knob of the policy."""
    what = "duration" if name.endswith(UNIT) else "number"
    return Kind(
        name=f"{what}, {in_words(name, KNOBS[name].least)} to {in_words(name, KNOBS[name].most)}",
        example=in_words(name, default),
        read=lambda value, field: read_knob(name, value, field),
    )


def read_rates(value: object, field: str) -> dict[str, int]:
    """Exchange rates by GPU type, in thousandths."""
    rates: dict[str, int] = {}
    for gpu_type, rate in _mapping(value, field, example=RATES_EXAMPLE).items():
        where = f"{field}.{gpu_type}"
        milli = _exact_milli(rate, where)
        try:
            check_rate(gpu_type, milli)
        except Refusal as out:
            raise Refusal(field=where, problem=out.problem, fix=out.fix) from out
        rates[gpu_type] = milli
    return rates


def _exact_milli(rate: object, field: str) -> int:
    try:
        milli = Decimal(str(rate)) * MILLI
        whole = int(milli) if milli.is_finite() and abs(milli) < 10 * RATE_MOST else None
    except (ArithmeticError, ValueError):
        milli, whole = Decimal(0), None
    if whole is None or isinstance(rate, bool) or whole != milli:
        fix = "give a number with at most three decimals, such as 2.5"
        raise Refusal(field=field, problem=f"{shown(rate)} is no rate", fix=fix)
    return whole


def read_clusters(value: object, field: str) -> dict[str, dict[str, int | float]]:
    """By cluster of hosts the knobs that have another value there, by the names of their fields."""
    known = {spoken(name): name for name in OF_CLUSTER}
    found: dict[str, dict[str, int | float]] = {}
    for cluster, knobs in _mapping(value, field, example=CLUSTERS_EXAMPLE).items():
        where = f"{field}.{cluster}"
        check_word(cluster, field=field)
        for key in (own := _mapping(knobs, where, example="{min_runtime_cap: 2h}")):
            if key not in known:
                raise unknown_key(key, known=known, where=where)
        found[cluster] = {known[key]: read_knob(known[key], each, f"{where}.{key}") for key, each in own.items()}
    return found


def _mapping(value: object, field: str, *, example: str) -> dict[str, object]:
    """A mapping, which may be written on one line as in YAML."""
    if isinstance(value, str):
        value = parse_yaml(value.encode(errors="replace"), name=field)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Refusal(field=field, problem=f"{shown(value)} is no mapping", fix=f"write {example}")
    return value


RATES_EXAMPLE, CLUSTERS_EXAMPLE = "{B200: 2.5, CPU: 0.05}", "{dev: {min_runtime_cap: 2h}}"
MAPPING_KINDS: Mapping[str, Kind] = {
    RATES: Kind(name="mapping, 0.001 to 1000 each", example=RATES_EXAMPLE, read=read_rates),
    CLUSTERS: Kind(name="mapping, as the knobs", example=CLUSTERS_EXAMPLE, read=read_clusters),
}
"""How the mappings of the policy are read."""
_LEVEL = choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEVEL = Kind(name=_LEVEL.name, example="INFO", read=read_level)
TEXT = Kind(name="text", example="NAME", read=read_text, metavar="TEXT")
TRUTH = Kind(name="true or false", example="true", read=read_truth)
PATH = Kind(name="path", example="/etc/tenure/FILE", read=read_path, metavar="PATH")
FILE = Kind(name="file", example="/etc/tenure/FILE", read=read_path, files=True, metavar="FILE")
WEB = Kind(name="http(s) address", example="http://clickhouse:8123", read=read_web, metavar="URL")
ADDRESS = Kind(
    name="address and port",
    example="127.0.0.1:9464",
    read=lambda value, field: parse_listen(read_text(value, field), field),
    metavar="HOST:PORT",
)
SERVERS = Kind(name="nats or tls addresses", example="tls://nats-1:4222", read=read_servers, metavar="URL")
DECIMAL = Kind(name="number, 0 or more", example="10.5", read=read_decimal, metavar="N")
SIZE = Kind(name="size", example="4GiB", read=lambda value, field: parse_size(str(value), field=field), metavar="SIZE")
