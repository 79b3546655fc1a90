"""The five ways in which something is shown: figures, lines, bars, a table, a timeline. Each with its query.

A panel's `columns` are the columns of the answer, in order: tests compare them with what the engine says.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from grafana_foundation_sdk.builders import barchart, common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as model
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

from deploy.grafana.colours import PLAIN, Steps
from deploy.grafana.query import SOURCE, Target

WIDTH = 24
"""Columns of Grafana's grid."""
Drawn = TypeVar("Drawn", timeseries.Panel, barchart.Panel)
AnyPanel = stat.Panel | timeseries.Panel | barchart.Panel | table.Panel | statetimeline.Panel


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """What every panel has. `width` is in columns of the grid, `height` in its rows."""

    title: str
    says: str
    """What it means, in plain words; Grafana shows it at the `i`."""
    sql: str
    columns: tuple[str, ...]
    width: int
    height: int = 8
    unit: str = "short"
    decimals: int | None = None
    interval: str = ""
    """No bucket is shorter: hourly rollups have nothing finer."""
    series: ClassVar[bool] = False

    @abstractmethod
    def build(self) -> AnyPanel:
        """The SDK's builder of this panel."""

    def dressed(self, panel: Any) -> Any:
        """The builder with everything that does not depend on how it is shown."""
        panel = (
            panel.title(self.title)
            .description(self.says)
            .datasource(SOURCE)
            .span(self.width)
            .height(self.height)
            .unit(self.unit)
            .with_target(Target(sql=self.sql, series=self.series))
            .no_value("nothing in this time")
        )
        if self.decimals is not None:
            panel = panel.decimals(self.decimals)
        return panel.interval(self.interval) if self.interval else panel


@dataclass(frozen=True, kw_only=True)
class Figures(Panel):
    """One row of numbers, each large. `units`, `digits` and `steps` are those of a column that has its own."""

    height: int = 4
    units: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, Steps] = field(default_factory=dict)

    def build(self) -> stat.Panel:
        """A stat panel."""
        reduce = common.ReduceDataOptions().values(False).calcs(["lastNotNull"]).fields("/.*/")
        panel: stat.Panel = self.dressed(stat.Panel())
        panel = (
            panel.reduce_options(reduce)
            .graph_mode(model.BigValueGraphMode.NONE)
            .color_mode(model.BigValueColorMode.VALUE)
            .text_mode(model.BigValueTextMode.VALUE_AND_NAME)
            .thresholds(thresholds(PLAIN))
            .color_scheme(build.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        )
        for column in self.columns:
            properties = written(self.units.get(column), self.digits.get(column))
            if column in self.steps:
                properties.append(DynamicConfigValue(id_val="thresholds", value=thresholds(self.steps[column]).build()))
            if properties:
                panel = panel.override_by_name(column, properties)
        return panel


@dataclass(frozen=True, kw_only=True)
class Lines(Panel):
    """Values over time: a column `time`, then one for each line, in `colours`. Stacked they are areas, or bars."""

    colours: Mapping[str, str]
    stacked: bool = False
    bars: bool = False
    stepped: bool = False
    least: float | None = 0
    most: float | None = None
    series: ClassVar[bool] = True

    def build(self) -> timeseries.Panel:
        """A time series panel."""
        panel: timeseries.Panel = self.dressed(timeseries.Panel())
        mode = model.StackingMode.NORMAL if self.stacked else model.StackingMode.NONE
        panel = (
            panel.legend(legend())
            .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI))
            .draw_style(model.GraphDrawStyle.BARS if self.bars else model.GraphDrawStyle.LINE)
            .line_interpolation(model.LineInterpolation.STEP_AFTER if self.stepped else model.LineInterpolation.LINEAR)
            .line_width(1 if self.stacked else 2)
            .fill_opacity(85 if self.stacked or self.bars else 0)
            .stacking(common.StackingConfig().mode(mode).group("A"))
            .show_points(model.VisibilityMode.NEVER)
            .span_nulls(True)
        )
        if self.least is not None:
            panel = panel.min(self.least)
        if self.most is not None:
            panel = panel.max(self.most)
        return coloured(panel, self.colours)


@dataclass(frozen=True, kw_only=True)
class Bars(Panel):
    """Bars side by side, or stacked: the first column says of what, then one for each bar, in `colours`."""

    colours: Mapping[str, str]
    stacked: bool = False
    upright: bool = False

    def build(self) -> barchart.Panel:
        """A bar chart."""
        panel: barchart.Panel = self.dressed(barchart.Panel())
        panel = (
            panel.x_field(self.columns[0])
            .orientation(model.VizOrientation.VERTICAL if self.upright else model.VizOrientation.HORIZONTAL)
            .stacking(model.StackingMode.NORMAL if self.stacked else model.StackingMode.NONE)
            .show_value(model.VisibilityMode.AUTO)
            .fill_opacity(90)
            .group_width(0.8)
            .bar_width(0.9)
            .legend(legend())
            .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI))
        )
        return coloured(panel, self.colours)


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Rows. `units` and `digits` of columns with their own; `steps`: whose numbers are coloured; `widths` in pixels."""

    units: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, Steps] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)

    def build(self) -> table.Panel:
        """A table."""
        panel: table.Panel = self.dressed(table.Panel()).cell_height(model.TableCellHeight.SM)
        panel = panel.color_scheme(build.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        for column in self.columns:
            properties = written(self.units.get(column), self.digits.get(column))
            if column in self.steps:
                properties += [
                    DynamicConfigValue(id_val="thresholds", value=thresholds(self.steps[column]).build()),
                    DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
                ]
            if column in self.widths:
                properties.append(DynamicConfigValue(id_val="custom.width", value=self.widths[column]))
            if properties:
                panel = panel.override_by_name(column, properties)
        return panel


@dataclass(frozen=True, kw_only=True)
class Timeline(Panel):
    """A row for each name, coloured by a number (`steps`) or what it stands for (`words`): `time`, the name, the value.

    Grafana makes a field of each name, called after it.
    """

    steps: Steps = PLAIN
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """A number, as text: the word and the colour it stands for."""
    series: ClassVar[bool] = True

    def build(self) -> statetimeline.Panel:
        """A state timeline."""
        panel: statetimeline.Panel = self.dressed(statetimeline.Panel())
        panel = (
            panel.display_name("${__field.labels." + self.columns[1] + "}")
            .merge_values(True)
            .show_value(model.VisibilityMode.NEVER)
            .row_height(0.85)
            .line_width(0)
            .fill_opacity(90)
            .legend(legend())
            .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.SINGLE))
        )
        if self.words:
            results = {
                value: ValueMappingResult(text=word, color=colour, index=number)
                for number, (value, (word, colour)) in enumerate(self.words.items())
            }
            return panel.mappings([ValueMap(options=results)])
        return panel.thresholds(thresholds(self.steps)).color_scheme(
            build.FieldColor().mode(FieldColorModeId.THRESHOLDS)
        )


def legend() -> common.VizLegendOptions:
    """Below the chart, as a list, so that nothing is cut."""
    return (
        common.VizLegendOptions()
        .display_mode(model.LegendDisplayMode.LIST)
        .placement(model.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def thresholds(steps: Steps) -> build.ThresholdsConfig:
    """Absolute ones."""
    made = [Threshold(value=value, color=colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(made)


def written(unit: str | None, digits: int | None) -> list[DynamicConfigValue]:
    """The properties of a column with a unit, or a number of decimals, of its own."""
    found = {"unit": unit, "decimals": digits}
    return [DynamicConfigValue(id_val=name, value=value) for name, value in found.items() if value is not None]


def coloured(panel: Drawn, colours: Mapping[str, str]) -> Drawn:
    """Each field in its colour."""
    for name, colour in colours.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(name, [DynamicConfigValue(id_val="color", value=fixed)])
    return panel
