"""The policy and the connections of a process."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from tenure.domain.nearest import unknown_key
from tenure.domain.policy import CLUSTERS, KNOBS, MAPPINGS, RATES, UNIT, Policy, in_words, mapping_in_words, spoken
from tenure.domain.refusal import Refusal
from tenure.log.access import Access
from tenure.runtime.settings.kinds import MAPPING_KINDS, read_knob


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a role finds the log, the database and its own files."""

    log: Access
    cluster: str
    data: Path
    clickhouse_url: str | None = None
    clickhouse_token_file: Path | None = None


_FIELDS = {RATES: "rates_milli", CLUSTERS: "clusters"}


def knob_names() -> dict[str, str]:
    """The policy's knobs as people write them, each with its default in words."""
    usual = Policy()
    single = {spoken(name): in_words(name, getattr(usual, name)) for name in KNOBS}
    return {**single, **{name: mapping_in_words(name, usual) for name in MAPPINGS}}


def build_policy(values: Mapping[str, object], *, over: Policy | None = None) -> Policy:
    """The policy with `values` (knob: value, as people write them) over the defaults, or over another policy.

    Raises `Refusal`.
    """
    chosen: dict[str, object] = {}
    for key, value in values.items():
        if key in MAPPINGS:
            chosen[_FIELDS[key]] = MAPPING_KINDS[key].read(value, key)
            continue
        name = key if key in KNOBS and not key.endswith(UNIT) else key + UNIT
        if name not in KNOBS:
            raise unknown_key(key, known=knob_names(), where="policy")
        chosen[name] = read_knob(name, value, key)
    return dataclasses.replace(over or Policy(), **chosen)  # type: ignore[arg-type]


def parse_settings(settings: Iterable[str]) -> dict[str, object]:
    """`--set key=value` arguments as a mapping. Raises `Refusal`."""
    values: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise Refusal(field="--set", problem=f"{setting[:60]!r} has no '='", fix="write --set key=value")
        values[key.strip()] = value.strip()
    return values
