"""The roles of deploy/compose.yaml as processes: what its image and its services say."""

import json
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.e2e.deployed import ROOT, Process

COMPOSE = ROOT / "deploy" / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"


def compose() -> dict[str, Any]:
    """The file, merged."""
    loaded: dict[str, Any] = YAML(typ="safe").load(COMPOSE)
    return loaded


def image_environment() -> dict[str, str]:
    """What the image's last stage sets, without the PATH."""
    last = DOCKERFILE.read_text().rpartition("\nFROM ")[2]
    pairs = re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", last, re.MULTILINE)))
    return {name: value for name, value in pairs if name != "PATH"}


def entrypoint() -> list[str]:
    """The image's command."""
    (words,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    return list(json.loads(words))


def processes(secrets: Path) -> list[Process]:
    """Every service of our image that serves a role."""
    services = compose()["services"].items()
    return [_process(name, each, secrets) for name, each in services if each.get("command", [""])[0] == "serve"]


def maker_of_the_log(secrets: Path) -> Process:
    """The service that makes the log and ends."""
    return _process("log", compose()["services"]["log"], secrets)


def _process(name: str, service: dict[str, Any], secrets: Path) -> Process:
    check = service["healthcheck"].get("test", ["CMD-SHELL", ""])
    assert check[0] == "CMD-SHELL", check
    files = {f"/run/secrets/{secret}": (secrets / secret).read_bytes() for secret in service["secrets"]}
    for mount in service.get("volumes", ()):
        source, _, rest = mount.partition(":")
        if source.startswith("./"):
            files[rest.removesuffix(":ro")] = (COMPOSE.parent / source).read_bytes()
    return Process(
        name=name,
        command=[*service.get("entrypoint", entrypoint()), *service["command"]],
        environment={**image_environment(), **service.get("environment", {})},
        files=files,
        health=[["sh", "-c", check[1]]],
    )
