"""What can be said is shown: every reason by a scenario, every kind of fact and every knob in the documentation."""

import re

from tenure.domain.reasons import Reason
from tenure.events import catalogue
from tenure.runtime.settings.page import page
from tests.architecture.sources import ROOT, production, say


def words_of(*folders_or_files: str, pattern: str) -> set[str]:
    text = "\n".join(
        path.read_text()
        for name in folders_or_files
        for path in (sorted((ROOT / name).glob(pattern)) if (ROOT / name).is_dir() else [ROOT / name])
    )
    return set(re.findall(r"\w+", text))


def test_every_reason_has_a_scenario() -> None:
    shown = words_of("tests/scenario", pattern="*.yaml")
    missing = [reason.value for reason in Reason if reason.value not in shown]
    assert not missing, say("no scenario in tests/scenario shows", missing)


def test_every_reason_is_given_somewhere() -> None:
    """A member that nothing cites is no reason."""
    cited = {name for module in production() for name in re.findall(r"Reason\.([A-Z_]+)", module.text)}
    unused = [reason.name for reason in Reason if reason.name not in cited]
    assert not unused, say("nothing cites", unused)


def test_every_kind_of_fact_is_described() -> None:
    described = words_of("docs/architecture.md", "docs/glossary.md", pattern="*.md")
    missing = [name for name in catalogue.KINDS if name not in described]
    assert not missing, say("docs/architecture.md and docs/glossary.md do not mention", missing)


def test_every_setting_is_described() -> None:
    """`tenure config reference > docs/configuration.md` brings it up to date."""
    assert (ROOT / "docs/configuration.md").read_text() == page()
