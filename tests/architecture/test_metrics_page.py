"""docs/metrics.md is what the code tells, and what it tells is named as others name it."""

import re

from tests.architecture.sources import production, say
from tests.checks.metrics_page import PAGE, all_metrics, text

NAME = re.compile(r"tenure(\.[a-z][a-z_]*)+")
UNIT = re.compile(r"s|1|\{[a-z]+\}|")
MADE = re.compile(r"\b(?:counter|gauge|histogram)\(\s*\"(tenure\.[\w.]+)\"")


def test_the_page_is_made_from_the_code() -> None:
    assert PAGE.read_text() == text(), "python -m tests.checks.metrics_page writes it"


def test_every_metric_of_the_code_is_on_the_page() -> None:
    made = {name for module in production() for name in MADE.findall(module.text)}
    assert made == {metric.name for metric in all_metrics()}


def test_names_and_units_are_conventional() -> None:
    metrics = all_metrics()
    assert len({metric.prometheus_name for metric in metrics}) == len(metrics)
    odd = [m.name for m in metrics if not NAME.fullmatch(m.name) or not UNIT.fullmatch(m.unit)]
    odd += [m.name for m in metrics if m.name.endswith(".total") or re.search(r"_(total|seconds|ratio)\b", m.name)]
    assert not odd, say("names or units", odd)
