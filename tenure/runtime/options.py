"""Configuration: the policy and the connections of a process, from a file, `--set key=value` and defaults, validated.

An unknown key is refused with the nearest known one. Durations are written `90s 15m 8h 7d` under the knob's name
without its unit.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_type_hints

from tenure.domain.nearest import unknown_key
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import format_duration, parse_duration
from tenure.log.access import Access
from tenure.runtime.yaml_file import load_yaml

_UNIT = "_ms"
_POLICY, SIGNALS, REPAIR, IDENTITY = "policy", "signals", "repair", "identity"
SECTIONS = (_POLICY, SIGNALS, REPAIR, IDENTITY)
"""The sections of a configuration file. One file serves all roles: each reads what is for it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a role finds the log, the database and its own files."""

    log: Access
    cluster: str
    data: Path
    clickhouse_url: str | None = None
    clickhouse_token_file: Path | None = None


def knob_names() -> dict[str, str]:
    """The policy's knobs as people write them, each with its default in words."""
    shown: dict[str, str] = {}
    for field in dataclasses.fields(Policy):
        value = field.default
        is_duration = field.name.endswith(_UNIT)
        shown[field.name.removesuffix(_UNIT)] = format_duration(value) if is_duration else str(value)  # type: ignore[arg-type]
    return shown


def build_policy(values: Mapping[str, object]) -> Policy:
    """The policy with `values` (knob: value, as people write them) over the defaults. Raises `Refusal`."""
    hints = get_type_hints(Policy)
    chosen: dict[str, object] = {}
    for key, value in values.items():
        name = key if key in hints and not key.endswith(_UNIT) else key + _UNIT
        if name not in hints:
            raise unknown_key(key, known=knob_names(), where="policy")
        chosen[name] = _knob(name, key, value, hints[name])
    return Policy(**chosen)  # type: ignore[arg-type]


def parse_settings(settings: Iterable[str]) -> dict[str, object]:
    """`--set key=value` arguments as a mapping. Raises `Refusal`."""
    values: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise Refusal(field="--set", problem=f"{setting[:60]!r} has no '='", fix="write --set key=value")
        values[key.strip()] = value.strip()
    return values


def load_policy(config: Path | None, settings: Iterable[str]) -> Policy:
    """The policy from the `policy:` section of a configuration file, then `--set`, which wins. Raises `Refusal`."""
    return build_policy(load_section(_POLICY, config, settings))


def load_section(name: str, config: Path | None, settings: Iterable[str]) -> dict[str, object]:
    """One section of the file, then `--set`, which wins: `KEY=VALUE` for the policy, `NAME.KEY=VALUE` for the others.

    Raises `Refusal` for what is no configuration file; the section's reader judges the keys.
    """
    values: dict[str, object] = {}
    if config is not None:
        document = load_yaml(config)
        if not isinstance(document, dict) or set(document) - set(SECTIONS):
            raise Refusal(
                field=str(config), problem="not a configuration file", fix="write 'policy:' and knobs below it"
            )
        section = document.get(name) or {}
        if not isinstance(section, dict):
            raise Refusal(field=name, problem="not a mapping", fix="write one 'key: value' a line below it")
        for key, value in section.items():
            if not isinstance(key, str):
                raise Refusal(field=name, problem=f"{str(key)[:40]!r} is no key", fix="write one 'key: value' a line")
            values[key] = value
    for key, value in parse_settings(settings).items():
        prefix, dot, rest = key.partition(".")
        owner, own_key = (prefix, rest) if dot and prefix in SECTIONS else (_POLICY, key)
        if owner == name:
            values[own_key] = value
    return values


def _knob(name: str, key: str, value: object, kind: type) -> object:
    if name.endswith(_UNIT):
        length = parse_duration(str(value), field=key)
        if length == 0 and name in ("lookback_ms", "heartbeat_ms", "min_runtime_cap_ms"):
            raise Refusal(field=key, problem="0 leaves nothing to work with", fix="give a positive duration")
        return length
    try:
        number = kind(str(value))
        is_one = math.isfinite(number) and number >= 0
    except (ValueError, OverflowError):
        is_one = False
    if not is_one:
        raise Refusal(field=key, problem=f"{str(value)[:40]!r} is not a number", fix="give a number of 0 or more")
    return number
