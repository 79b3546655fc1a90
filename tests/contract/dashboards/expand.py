"""A committed dashboard as Grafana reads it: its panels, and their queries with macros and variables expanded.

Macros are those of grafana-clickhouse-datasource 4 (its README; `pkg/macros`), intervals and variables Grafana's own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.grafana.written import FOLDER, ROOT
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis

ALL: None = None
PIXELS_A_COLUMN = 60
ROUND = [
    *(1 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 20 * SECOND, 30 * SECOND),
    *(1 * MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(1 * HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 1 * DAY, 7 * DAY, 30 * DAY),
]
"""Intervals that Grafana chooses from."""
_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A panel of a committed dashboard."""

    board: str
    panel: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Its heading."""
        return str(self.panel["title"])

    @property
    def sql(self) -> str:
        """What it asks, as it is written."""
        (target,) = self.panel["targets"]
        return str(target["rawSql"])

    def asks(self, since: Millis, until: Millis, chosen: Mapping[str, Sequence[str] | None] | None = None) -> str:
        """What reaches ClickHouse when [since, until] is looked at. `chosen`: values of variables, `ALL` at first."""
        least = self.panel.get("interval", "")
        least_ms = int(least[:-1]) * _UNITS[least[-1]] if least else SECOND
        points = self.panel["gridPos"]["w"] * PIXELS_A_COLUMN
        interval = next(each for each in ROUND if each >= max((until - since) / points / 1.5, least_ms))
        return expand(self.sql, since=since, until=until, interval=interval, chosen=chosen or {})


def dashboards() -> dict[str, Mapping[str, Any]]:
    """The committed files, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / FOLDER).glob("*.json"))}


def panels(board: str, dashboard: Mapping[str, Any]) -> Iterator[Shown]:
    """The panels of a dashboard that ask something."""
    for panel in dashboard["panels"]:
        if panel.get("targets"):
            yield Shown(board=board, panel=panel)


def expand(
    sql: str, *, since: Millis, until: Millis, interval: Millis, chosen: Mapping[str, Sequence[str] | None]
) -> str:
    """The query with nothing of Grafana's left in it. Raises ValueError if something is."""
    sql = _conditional_all(sql, chosen)
    for name, values in chosen.items():
        if values is not None:
            quoted = ",".join("'" + value.replace("'", "\\'") + "'" for value in values)
            sql = sql.replace(f"${{{name}:singlequote}}", quoted)
    from_s, to_s = since // SECOND, until // SECOND
    interval_s = max(1, interval // SECOND)

    def filtered(match: re.Match[str]) -> str:
        return f"{match[1]} >= toDateTime({from_s}) AND {match[1]} <= toDateTime({to_s})"

    def grouped(match: re.Match[str]) -> str:
        return f"toStartOfInterval(toDateTime({match[1]}), INTERVAL {interval_s} second)"

    for pattern, becomes in (
        (r"\$__timeFilter\(([^()]*)\)", filtered),
        (r"\$__timeInterval\(([^()]*)\)", grouped),
        (r"\$__fromTime_ms\b", f"fromUnixTimestamp64Milli({since})"),
        (r"\$__toTime_ms\b", f"fromUnixTimestamp64Milli({until})"),
        (r"\$__fromTime\b", f"toDateTime({from_s})"),
        (r"\$__toTime\b", f"toDateTime({to_s})"),
        (r"\$__interval_s\b", str(interval_s)),
    ):
        sql = re.sub(pattern, becomes, sql)
    if "$" in sql:
        raise ValueError(f"not expanded: {sql[sql.index('$') :][:80]}")
    return sql


def _conditional_all(sql: str, chosen: Mapping[str, Sequence[str] | None]) -> str:
    """`$__conditionalAll(condition, $variable)`: the condition, or `1=1` where all values are chosen."""
    macro = "$__conditionalAll("
    while (start := sql.rfind(macro)) >= 0:
        depth, at = 1, start + len(macro)
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[at], 0)
            at += 1
        condition, _, variable = sql[start + len(macro) : at - 1].rpartition(",")
        everything = chosen.get(variable.strip().lstrip("$"), ALL) is ALL
        sql = sql[:start] + ("1=1" if everything else condition) + sql[at:]
    return sql
