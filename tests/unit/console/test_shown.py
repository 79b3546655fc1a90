"""How values are written: words, tables, lines, bars of runs."""

import csv
import io

import pytest

from services.console import questions, words
from services.console.charts import HEIGHT, LEFT, WIDTH, Series, line_chart
from services.console.pages.budgets import ROWS_LATE_MS, over_time
from services.console.pages.cluster import WIDE, bars_by_host, drawn_of
from services.console.pages.spans import Span
from services.console.tables import Column, Kind, Table, as_csv
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND
from tenure.v1 import jobs_pb2

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("length", "said"),
    [(0, "0s"), (-5, "0s"), (59_999, "59s"), (MINUTE, "1m"), (HOUR + 61_000, "1h1m"), (3 * DAY + 4 * HOUR, "3d4h")],
)
def test_lengths(length: int, said: str) -> None:
    assert words.age(length) == said


@pytest.mark.parametrize(
    ("gpu_ms", "said"),
    [(0, "even"), (1000, "even"), (2.5 * HOUR, "2.5 h ahead"), (-HOUR / 4, "0.25 h behind"), (1e10, "2,778 h ahead")],
)
def test_ahead_and_behind(gpu_ms: float, said: str) -> None:
    assert words.ahead(gpu_ms) == said


def test_a_reason_is_a_sentence_with_its_numbers_and_an_unknown_one_its_name() -> None:
    told = jobs_pb2.Why(rule="P6", reason="defer_no_room", numbers={"gpus_asked": "8", "gpus_free": "3"})
    assert words.why(told) == "It asks for 8 GPUs and 3 are free"
    assert words.why(told, gpu_type="CPU") == "It asks for 8 CPUs and 3 are free"
    assert words.why(jobs_pb2.Why(rule="P6", reason="defer_for_the_moon")) == "defer for the moon"
    assert words.why(jobs_pb2.Why()) == ""
    cancelled = jobs_pb2.Why(rule="P5", reason="stop_cancelled", numbers={"by": "root"})
    assert words.why(cancelled) == "root cancelled it"
    lower = {"level": "a", "ratio": "0.5", "victim_level": "b", "victim_ratio": "1.25", "margin": "0.02"}
    told = jobs_pb2.Why(rule="P5", reason="disrupt_lower_ratio", numbers={**lower, "protected_until_ms": str(NOW)})
    assert "a has had 0.50 of its share while b has had 1.25" in words.why(told)


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("0.5", 0.5), ("true", True), ("h000", "h000"), ("", "")])
def test_numbers_of_a_reason_are_what_they_were(text: str, value: object) -> None:
    assert words.number(text) == value and type(words.number(text)) is type(value)


def test_a_table_is_exported_with_raw_values() -> None:
    columns = (Column(key="a", title="A", below="b"), Column(key="n_gpu_ms", title="N", kind=Kind.GPU_TIME))
    rows = [{"a": "=cmd()", "b": 'x,"y"', "n_gpu_ms": HOUR, "not a column": 1}, {"a": None, "b": "@x", "n_gpu_ms": -5}]
    table = Table(name="t", caption="T", columns=columns, rows=rows, key="a")
    assert table.document()[0] == {"a": "=cmd()", "b": 'x,"y"', "n_gpu_ms": HOUR}
    read = list(csv.reader(io.StringIO(as_csv(table))))
    assert read == [["a", "b", "n_gpu_ms"], ["'=cmd()", 'x,"y"', str(HOUR)], ["", "'@x", "-5"]]
    empty = Table(name="t", caption="T", columns=columns, rows=[], key="a")
    assert as_csv(empty).strip() == '"a","b","n_gpu_ms"'


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", " =1", "＝1", "＋1", "－1", "＠x"])
def test_no_cell_is_a_formula(text: str) -> None:
    rows = [{"a": text, "n": -1}, {"a": "a;=1", "n": 2.5}]
    columns = (Column(key="a", title="A"), Column(key="n", title="N", kind=Kind.NUMBER))
    told = as_csv(Table(name="t", caption="T", columns=columns, rows=rows, key="a"))
    assert told.startswith(f'"a","n"\r\n"\'{text}",-1\r\n'), told
    assert told.endswith('"a;=1",2.5\r\n'), "quoted, so that no other separator cuts it"


def test_lines_lie_inside_their_chart() -> None:
    lines = [
        Series("used", "c1", [(NOW, 0.0), (NOW + HOUR, 97.0), (NOW + 2 * HOUR, 3.0)], True),
        Series("short", "c2", [(NOW, 1.0)]),
    ]
    chart = line_chart(lines, since=NOW, until=NOW + 2 * HOUR, says="use", mark=1.0)
    assert chart is not None and [each.name for each in chart.drawn] == ["used"], "a point is no line"
    assert [tick.text for tick in chart.up] == ["0", "25", "50", "75", "100"]
    points = [tuple(map(float, point.split())) for point in chart.drawn[0].line[1:].split("L")]
    assert points[0] == (LEFT, HEIGHT - 26) and all(LEFT <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert chart.drawn[0].area.endswith("Z") and chart.mark is not None and len(chart.across) >= 4
    assert line_chart([lines[1]], since=NOW, until=NOW + HOUR, says="") is None
    flat = line_chart([Series("none", "c1", [(NOW, 0.0), (NOW + HOUR, 0.0)])], since=NOW, until=NOW + HOUR, says="")
    assert flat is not None, "nothing used is a line, too"


def test_a_timeline_that_was_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "TIMELINE_ROWS_MAX", 2)
    rows = [[host, "a.1", "x", True, 4, NOW, NOW + 1] for host in ("h0", "h1", "h2")]
    assert drawn_of(rows[:2]) == (rows[:2], "")
    drawn, said = drawn_of(rows)
    assert drawn == rows[:2] and "More than 2 runs" in said and "from h2 on" in said
    assert f"LIMIT {20_000 + 1}" in questions.TIMELINE


def test_the_last_step_of_a_line_is_left_out_while_its_rows_may_be_missing() -> None:
    hour = NOW // HOUR * HOUR
    rows = [[at // 1000, 8 * part, 0, 0, 4 * part, 0] for at, part in ((hour - HOUR, HOUR), (hour, ROWS_LATE_MS))]
    told = over_time(rows, Span(hour - HOUR, hour + ROWS_LATE_MS))
    assert [row["charged_gpus"] for row in told.rows] == [4.0, 4.0]
    early = over_time(rows, Span(hour - HOUR, hour + ROWS_LATE_MS - 1))
    assert [row["at_ms"] for row in early.rows] == [hour - HOUR]


def test_runs_on_a_host_are_drawn_beside_each_other() -> None:
    rows = [
        ["h0", "a.1", "x", True, 4, NOW - HOUR, NOW + 10 * SECOND],
        ["h0", "b.1", "y", True, 4, NOW, NOW + 10 * SECOND],
        ["h0", "c.1", "y", False, 8, NOW + 10 * SECOND, NOW + 40 * SECOND],
        ["gone", "d.1", "y", True, 8, NOW, NOW + 10 * SECOND],
    ]
    bars = bars_by_host(rows, {"h0": 8, "h1": 8}, NOW, NOW + 20 * SECOND, {"x": "c1", "y": "c2"})
    assert set(bars) == {"h0"}, "a host that is no more has no row"
    a, b, c = bars["h0"]
    assert (a.x, a.y, a.width, a.height, a.colour) == (0, 0, WIDE / 2, 4, "c1")
    assert (b.y, b.height, b.colour) == (4, 4, "c2")
    assert (c.x, c.y, c.height, c.colour) == (WIDE / 2, 0, 8, "f-unallocated") and c.x + c.width == WIDE
