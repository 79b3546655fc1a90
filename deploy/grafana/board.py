"""A dashboard: rows of panels under variables, a link to the others, and below how to read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import text
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.text import TextMode

from deploy.grafana.panels import WIDTH, Panel
from deploy.grafana.query import SOURCE

TAG = "tenure"
READING_HEIGHT = 4
VARIABLES = {
    "cluster": ("Cluster", "SELECT DISTINCT cluster FROM capacity ORDER BY cluster"),
    "budget": ("Budget", "SELECT DISTINCT path FROM shares WHERE leaf ORDER BY path"),
    "host": (
        "Host",
        "SELECT DISTINCT host FROM capacity WHERE cluster IN (${cluster:singlequote}) ORDER BY host",
    ),
}
"""Name: what people read, and the query for its values."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard. `name` is the file's. `reading`, in Markdown, stands below the panels and in the docs."""

    name: str
    title: str
    says: str
    reading: str
    variables: Sequence[str]
    rows: Sequence[Row]
    since: str = "now-30d"

    @property
    def uid(self) -> str:
        """Its address in Grafana, for ever."""
        return f"tenure-{self.name}"

    @property
    def panels(self) -> list[Panel]:
        """All panels, in order."""
        return [panel for row in self.rows for panel in row.panels]

    def build(self) -> build.Dashboard:
        """The SDK's builder of it."""
        made = (
            build.Dashboard(f"tenure / {self.title}")
            .uid(self.uid)
            .description(self.says)
            .tags([TAG])
            .timezone("browser")
            .time(self.since, "now")
            .refresh("5m")
            .readonly()
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .link(
                build.DashboardLink("Other dashboards")
                .type(DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .as_dropdown(True)
                .keep_time(True)
                .include_vars(True)
            )
        )
        for name in self.variables:
            made = made.with_variable(variable(name))
        number = count(1)
        for row in self.rows:
            made = made.with_row(build.Row(row.title).id(next(number)))
            for panel in row.panels:
                made = made.with_panel(panel.build().id(next(number)))
        reading = text.Panel().title("How to read this").mode(TextMode.MARKDOWN).content(self.reading)
        return made.with_panel(reading.id(next(number)).span(WIDTH).height(READING_HEIGHT))

    def json(self) -> str:
        """The file's text."""
        return JSONEncoder(sort_keys=True, indent=2).encode(self.build().build()) + "\n"


def variable(name: str) -> build.QueryVariable:
    """Several values of it may be chosen; all of them at first."""
    label, sql = VARIABLES[name]
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(sql)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.DISABLED)
        .multi(True)
        .include_all(True)
        .current(everything)
    )
