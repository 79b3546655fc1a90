"""How a panel asks ClickHouse: the target as the plugin grafana-clickhouse-datasource (4.0 and later) reads it.

Only macros of the plugin and Grafana's own variables stand in a query, so that a test can expand them as they do.
"""

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE_TYPE, SOURCE_UID = "grafana-clickhouse-datasource", "tenure-clickhouse"
SOURCE = DataSourceRef(type_val=SOURCE_TYPE, uid=SOURCE_UID)
PLUGIN_VERSION = "4.0.0"
TIME_SERIES, TABLE = 0, 1

FROM_MS = "toUnixTimestamp64Milli($__fromTime_ms)"
UNTIL_MS = "toUnixTimestamp64Milli($__toTime_ms)"
WINDOW = f"since_ms = {FROM_MS}, until_ms = {UNTIL_MS}"
"""The arguments of the views that are about a stretch of time: the one that is looked at, to the millisecond."""
CLUSTER = "$__conditionalAll(cluster IN (${cluster:singlequote}), $cluster)"
HOST = "$__conditionalAll(host IN (${host:singlequote}), $host)"
BUDGET = "$__conditionalAll(budget IN (${budget:singlequote}), $budget)"
PATH = "$__conditionalAll(path IN (${budget:singlequote}), $budget)"
HOURS = "3600000"
"""GPU-milliseconds in a GPU-hour."""


@dataclass(frozen=True, kw_only=True)
class ClickHouseQuery(Dataquery):
    """One target of a panel."""

    sql: str
    series: bool
    """Time series; otherwise a table."""

    def to_json(self) -> dict[str, Any]:
        """As the plugin has it in a dashboard."""
        return {
            "refId": "A",
            "datasource": SOURCE,
            "editorType": "sql",
            "format": TIME_SERIES if self.series else TABLE,
            "queryType": "timeseries" if self.series else "table",
            "pluginVersion": PLUGIN_VERSION,
            "rawSql": self.sql,
        }


@dataclass(frozen=True, kw_only=True)
class Target(Builder[Dataquery]):
    """The builder that the SDK's panels take."""

    sql: str
    series: bool = False

    def build(self) -> Dataquery:
        """The target."""
        return ClickHouseQuery(sql=self.sql.strip(), series=self.series)
