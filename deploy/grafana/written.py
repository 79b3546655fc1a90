"""What is written from the code: `dashboards/*.json`, which Grafana is provisioned with, and docs/dashboards.md."""

from pathlib import Path

from deploy.grafana.board import Board
from deploy.grafana.catalogue import BOARDS

ROOT = Path(__file__).parents[2]
FOLDER = Path("deploy/grafana/dashboards")
PAGE = Path("docs/dashboards.md")
INTRODUCTION = """# Dashboards

Six dashboards for Grafana, on the event log in ClickHouse. [operations.md](operations.md#grafana) says how to install
them. This page is written by `make dashboards` from `deploy/grafana/`, as the dashboards are; each panel says the same
at its `i`.

Every number follows from facts, so any time in the past can be looked at, and two people see the same. The time that is
chosen at the top right counts to the millisecond: hours at its edges count with what of them lies inside. The variables
Cluster, Budget and Host narrow down what is shown. Colours are told apart with any kind of colour vision: blue is good,
orange middling, red bad, grey neither.
"""


def files() -> dict[Path, str]:
    """Path from the root, and what is to stand there."""
    made = {FOLDER / f"{board.name}.json": board.json() for board in BOARDS}
    return {**made, PAGE: page()}


def page() -> str:
    """docs/dashboards.md."""
    return "\n".join([INTRODUCTION, *(section(board) for board in BOARDS)])


def section(board: Board) -> str:
    """The part of the page about one dashboard."""
    lines = [f"## {board.title}", "", board.says, "", board.reading, ""]
    for row in board.rows:
        lines += [f"### {row.title}", "", "| panel | what it says |", "|---|---|"]
        lines += [f"| {panel.title} | {panel.says.replace('|', chr(92) + '|')} |" for panel in row.panels]
        lines.append("")
    return "\n".join(lines)


def write(root: Path = ROOT) -> None:
    """Write all of it."""
    for path, text in files().items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        print(path)
