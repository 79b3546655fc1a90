"""The Helm chart: what it makes is such as Kubernetes takes, and says what is promised of it."""

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from services.__main__ import SERVED
from tenure.log.permissions import DOMAIN_API
from tenure.runtime.settings.table import BY_PATH
from tests.architecture.sources import ROOT
from tests.checks.chart import CHART, load, render

VERSIONS = ("1.28", "1.37")
DEPLOYED = set(SERVED) - {"clickhouse", "agent"}


def values(*, agents: bool = True) -> dict[str, Any]:
    given: dict[str, Any] = load(CHART / "values.yaml")
    given["agents"]["enabled"] = agents
    return given


def of_kind(kind: str, *, agents: bool = True) -> dict[str, dict[str, Any]]:
    """The objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in render(values(agents=agents)) if each["kind"] == kind}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_what_kubernetes_takes(version: str) -> None:
    for each in render(values()):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_key_that_kubernetes_does_not_know_is_found() -> None:
    deployment = next(iter(of_kind("Deployment").values()))
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_each_role_is_a_deployment_of_two_with_a_budget_and_a_policy() -> None:
    names = {f"tenure-{role}" for role in DEPLOYED}
    deployments = of_kind("Deployment")
    assert set(deployments) == names == set(of_kind("PodDisruptionBudget"))
    assert set(of_kind("NetworkPolicy")) == {*names, "tenure-clients", "tenure-browsers"}
    for deployment in deployments.values():
        assert deployment["spec"]["replicas"] == 2
        assert (
            deployment["spec"]["selector"]["matchLabels"].items()
            <= deployment["spec"]["template"]["metadata"]["labels"].items()
        )


def test_every_container_is_probed_limited_and_nobody_special() -> None:
    for deployment in of_kind("Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        assert {"livenessProbe", "readinessProbe"} <= set(container)
        assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_only_who_needs_clickhouse_reaches_it() -> None:
    reaches = {
        name.removeprefix("tenure-")
        for name, policy in of_kind("NetworkPolicy").items()
        for rule in policy["spec"]["egress"]
        if any(port["port"] == 8123 for port in rule["ports"])
    }
    assert reaches == {"gateway", "ranker", "journal", "console"}


def test_each_pod_is_given_its_own_keys_alone() -> None:
    for role in DEPLOYED:
        pod = of_kind("Deployment")[f"tenure-{role}"]["spec"]["template"]["spec"]
        secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert secrets == [f"tenure-keys-{role}"]
        (container,) = pod["containers"]
        assert "secrets" not in [mount["name"] for mount in container["volumeMounts"]]


def test_agents_are_on_nodes_only_where_that_is_said() -> None:
    assert not of_kind("DaemonSet", agents=False) and set(of_kind("DaemonSet")) == {"tenure-agent"}


def test_an_agent_says_its_nodes_name_and_address() -> None:
    pod = of_kind("DaemonSet")["tenure-agent"]["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in agent["env"] if "valueFrom" in each}
    assert fields == {"TENURE_AGENT_HOST": "spec.nodeName", "TENURE_AGENT_ADDRESS": "status.hostIP"}
    assert pod["hostNetwork"], "else it would be the address of another network"
    assert {BY_PATH["agent.host"].variable, BY_PATH["agent.address"].variable} == set(fields)


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm, which Debian and the package indexes do not have")
def test_helm_makes_of_it_what_our_renderer_does() -> None:
    command = ["helm", "template", "tenure", str(CHART), "--namespace", "tenure", "--set", "agents.enabled=true"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = [each for each in YAML(typ="safe").load_all(made) if each is not None]

    def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    for settings in (found := by_name(theirs), wanted := by_name(render(values()))):
        text = settings["ConfigMap", "tenure-settings"]["data"]["tenure.yaml"]
        settings["ConfigMap", "tenure-settings"]["data"] = YAML(typ="safe").load(text)
    assert found == wanted
    subprocess.run(["helm", "lint", str(CHART)], capture_output=True, check=True)


def test_the_values_for_other_charts_are_read_and_fit_the_log() -> None:
    nats, clickhouse = (load(CHART.parent / f"{name}-values.yaml") for name in ("nats", "clickhouse"))
    assert nats["config"]["jetstream"]["merge"]["sync_interval"] == "always"
    assert nats["config"]["jetstream"]["merge"]["domain"] == DOMAIN_API.split(".")[1]
    door, own = nats["config"]["leafnodes"], nats["config"]["nats"]
    assert door["enabled"] and door["tls"] == own["tls"] and own["tls"]["enabled"]
    assert f"nats-0:{door['port']}" in (ROOT / "deploy" / "nats" / "leaf.conf").read_text()
    assert nats["config"]["cluster"]["replicas"] == values()["log"]["replicas"] == 3
    assert int(nats["config"]["jetstream"]["fileStore"]["pvc"]["size"].removesuffix("Gi")) > values()["log"]["maxGib"]
    assert clickhouse["clickhouse"]["persistence"]["enabled"]
