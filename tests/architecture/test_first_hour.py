"""docs/from-nothing.md: what it takes from `deploy/` is there, and what it writes is read."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tenure.domain.tree_check import check_tree
from tenure.runtime.settings.given import collect
from tenure.runtime.yaml_file import parse_yaml
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs/from-nothing.md").read_text()
SYSTEMD = ROOT / "deploy/systemd"


def blocks(language: str) -> list[str]:
    """The blocks of code of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


SHELL = "\n".join(blocks("sh"))


def ports() -> dict[str, str]:
    """Where the metrics of each role are, by its environment file."""
    return {path.stem: path.read_text().strip().rpartition(":")[2] for path in (SYSTEMD / "env").glob("*.env")}


def test_what_it_copies_is_there() -> None:
    named = set(re.findall(r"deploy/[\w./-]+", SHELL))
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_units_are_shipped() -> None:
    units = set(re.findall(r"\btenure(?:-\w+\b|@(?=[\w{$]))", SHELL))
    assert units == {"tenure-nats", "tenure-agent", "tenure@"}
    assert all((SYSTEMD / f"{unit}.service").exists() for unit in units)


def test_its_certificates_have_the_names_that_the_settings_ask_for() -> None:
    (made,) = re.findall(r"deploy/secrets\.sh keys (\S+) (\S+)", SHELL)
    asked = re.findall(r"tls://([\w-]+):4222", (SYSTEMD / "tenure.yaml").read_text())
    assert made[1].split(",") == asked
    assert set(re.findall(r"tls://([\w-]+):4222", SHELL)) == set(asked)


def test_what_prometheus_is_given_names_every_role_and_nothing_else(tmp_path: Path) -> None:
    (script,) = re.findall(r"^sed '([^']+)' (deploy/prometheus/prometheus\.yaml)", SHELL, re.MULTILINE)
    done = subprocess.run(["sed", script[0], str(ROOT / script[1])], capture_output=True, check=True)
    (scraped,) = scrapes(parse_yaml(done.stdout, name="prometheus.yml"))
    assert set(scraped) == {"job_name", "file_sd_configs"}
    (targets,) = re.findall(r"<<'END'\n(.*?)^END", SHELL, re.MULTILINE | re.DOTALL)
    (group,) = json.loads(targets)
    agent = ports().pop("agent")
    roles = sorted(port for role, port in ports().items() if role != "agent")
    for machine in ("m1", "m2"):
        assert sorted(at[3:] for at in group["targets"] if at.startswith(machine)) == roles
    assert [at for at in group["targets"] if at.startswith("gpu")] == [f"gpu-017:{agent}", f"gpu-018:{agent}"]


def scrapes(document: object) -> Iterator[dict[str, object]]:
    """What a configuration of Prometheus scrapes."""
    assert isinstance(document, dict)
    yield from document["scrape_configs"]


def test_the_budgets_and_the_settings_that_it_shows_are_taken(tmp_path: Path) -> None:
    budgets, identity = blocks("yaml")
    check_tree(parse_yaml(budgets.encode(), name="budgets.yaml"))
    settings = (SYSTEMD / "tenure.yaml").read_text()
    (tmp_path / "tenure.yaml").write_text(settings[: settings.index("identity:")] + identity)
    _, wrong = collect(role="placer", config=tmp_path / "tenure.yaml", environment={})
    assert not wrong
    _, wrong = collect(role="gateway", config=tmp_path / "tenure.yaml", environment={})
    assert {str(each.field) for each in wrong} == {"identity.tls_certificate", "identity.tls_key"}, "they are not here"
