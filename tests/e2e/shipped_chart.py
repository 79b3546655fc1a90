"""The pods of deploy/helm/tenure as processes: what its Deployments, its DaemonSet and its Job say."""

from pathlib import Path
from typing import Any

from tests.checks.chart import CHART, load, render
from tests.e2e.deployed import Process
from tests.e2e.shipped_compose import entrypoint, image_environment
from tests.e2e.shipped_units import HOST, KEYS, common


def values() -> dict[str, Any]:
    """The chart's own, with agents on the nodes and one NATS server. There are no GPUs here: hosts are virtual."""
    given: dict[str, Any] = load(CHART / "values.yaml")
    given["agents"]["enabled"] = True
    given["log"] = {"replicas": 1, "maxGib": 80}
    agent = given["settings"]["agent"]
    assert agent.pop("provider") == "nvidia" and agent.pop("checkpoints")
    agent["hosts"] = "2x8"
    return given


def processes(secrets: Path) -> list[Process]:
    """Every role that the chart runs."""
    objects = render(values())
    (settings,) = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in ("Deployment", "DaemonSet")]
    return [_process(pod, settings, secrets) for pod in pods]


def maker_of_the_log(secrets: Path) -> Process:
    """The Job that makes the log."""
    (job,) = [each for each in render(values()) if each["kind"] == "Job"]
    return _process(job["spec"]["template"]["spec"], {}, secrets)


def _process(pod: dict[str, Any], settings: dict[str, str], secrets: Path) -> Process:
    (container,) = pod["containers"]
    role = container["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    environment = {each["name"]: _value(each) for each in container.get("env", ())}
    return Process(
        name=role,
        command=container.get("command") or [*entrypoint(), *container["args"]],
        environment={**image_environment(), **environment},
        files={
            **{f"/run/secrets/{name}": content for name, content in _secret(role, secrets).items()},
            **{f"{mounts['settings']}/{name}": text.encode() for name, text in settings.items()},
        },
        health=[check for probe in ("livenessProbe", "readinessProbe") for check in _checks(container, probe)],
        before=[each["command"] for each in pod["initContainers"]],
        mode=0o644,
    )


def _secret(role: str, secrets: Path) -> dict[str, bytes]:
    """As docs/operations.md says how it is made."""
    if role == "log":
        names = ["ca.crt", "nats-operator.seed"]
    else:
        names = [*common(role), *KEYS.get(role, ())]
    found = {name: (secrets / name).read_bytes() for name in names}
    if role == "agent":
        found[f"nats-agent-{HOST}.seed"] = found.pop("nats-agent.seed")
    return found


def _value(variable: dict[str, Any]) -> str:
    if "value" in variable:
        return str(variable["value"])
    return {"spec.nodeName": HOST, "status.hostIP": "127.0.0.1"}[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _checks(container: dict[str, Any], name: str) -> list[list[str]]:
    probe = container.get(name, {})
    if "exec" in probe:
        return [list(probe["exec"]["command"])]
    if "httpGet" not in probe:
        return []
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    url = f"http://127.0.0.1:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
    return [["python", "-c", f"import urllib.request as u; u.urlopen({url!r}, timeout={probe['timeoutSeconds']})"]]
