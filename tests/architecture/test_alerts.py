"""Alerts: each has a person it is for, a page to read, a test; each is about metrics that there are."""

import re
from typing import Any

from tenure.runtime.yaml_file import load_yaml
from tests.architecture.sources import ROOT
from tests.architecture.test_docs import anchors
from tests.checks.metrics_page import all_metrics

FOLDER = ROOT / "deploy/prometheus/rules"


def read(name: str) -> dict[str, Any]:
    """One of its files."""
    found = load_yaml(FOLDER / name)
    assert isinstance(found, dict)
    return found


RULES: list[dict[str, Any]] = [rule for group in read("tenure.rules.yaml")["groups"] for rule in group["rules"]]


def test_every_alert_says_who_and_what_to_do() -> None:
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert rule["labels"]["severity"] in ("page", "ticket"), rule
        assert rule["annotations"]["summary"]
        assert anchor == rule["alert"].lower()
        assert anchor in anchors((ROOT / page).read_text()), f"{page} has no section {rule['alert']}"


def test_every_runbook_says_how_urgent_it_is_what_to_look_at_and_what_to_do() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    for rule in RULES:
        section = page.partition(f"\n### {rule['alert']}\n")[2].partition("\n##")[0]
        assert section.lstrip().startswith(f"**{rule['labels']['severity'].capitalize()}.** "), rule["alert"]
        commands, after = re.findall(r"^    \S.*$", section, re.MULTILINE), section.rpartition("\n    ")[2]
        assert commands and after.partition("\n")[2].strip(), rule["alert"]


def test_every_alert_is_tried() -> None:
    tests = read("tenure.test.yaml")["tests"]
    tried = [(case["alertname"], "exp_alerts" in case) for test in tests for case in test["alert_rule_test"]]
    for rule in RULES:
        assert (rule["alert"], True) in tried and (rule["alert"], False) in tried, rule["alert"]


def test_alerts_are_about_metrics_that_there_are() -> None:
    known = {metric.prometheus_name for metric in all_metrics()}
    named = {name for rule in RULES for name in re.findall(r"\btenure_\w+", rule["expr"])}
    assert named and named <= known, named - known
