"""The table of settings: where a value comes from, what is refused and how it says so, what is made of it."""

import argparse
import re
from pathlib import Path

import pytest

from tenure.domain.policy import KNOBS, Policy
from tenure.domain.refusal import Refusal
from tenure.runtime.options import build_policy
from tenure.runtime.settings.console import CONSOLE
from tenure.runtime.settings.flags import add_flags, flags_given, tell_arguments
from tenure.runtime.settings.given import Settings, Source, collect, load_settings
from tenure.runtime.settings.page import example
from tenure.runtime.settings.table import BY_PATH, ENGINE, ROLES, SECTIONS, SETTINGS, settings_of
from tenure.runtime.yaml_file import parse_yaml


def written(folder: Path, text: str) -> Path:
    path = folder / "tenure.yaml"
    path.write_text(text)
    return path


def parsed(
    role: str, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[argparse.Namespace, Settings]:
    parser = argparse.ArgumentParser()
    add_flags(parser, role)
    given = parser.parse_args(arguments)
    settings = load_settings(
        role=role,
        config=given.config,
        environment=environment or {},
        flags=flags_given(given, role),
        sets=given.set,
    )
    tell_arguments(settings, given)
    return given, settings


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "cluster: file\nnats: {url: 'nats://127.0.0.1:1'}\ngateway: {listen: '127.0.0.1:1'}\n")
    environment = {"TENURE_NATS_URL": "nats://127.0.0.1:2", "TENURE_GATEWAY_LISTEN": "127.0.0.1:2"}
    given, settings = parsed("gateway", "--config", str(file), "--listen", "127.0.0.1:3", environment=environment)
    assert (given.cluster, given.nats, given.listen) == ("file", "nats://127.0.0.1:2", "127.0.0.1:3")
    assert settings.value("clickhouse.url") is None
    assert [settings.given[path].source for path in ("cluster", "nats.url", "gateway.listen")] == [
        Source.FILE,
        Source.ENVIRONMENT,
        Source.FLAG,
    ]
    assert settings.given["nats.url"].where == "TENURE_NATS_URL"


def test_variables_and_flags_of_before_go_on_working(tmp_path: Path) -> None:
    environment = {
        "TENURE_NATS": "nats://127.0.0.1:9",
        "TENURE_CLICKHOUSE": "http://c:8123",
        "TENURE_LISTEN": "127.0.0.1:5",
        "TENURE_LOG_LEVEL": "debug",
        "TENURE_NATS_KEY_FILE": "/keys/a",
    }
    given, settings = parsed("gateway", "--data", str(tmp_path), "--set", "lookback=3d", environment=environment)
    assert (given.nats, given.clickhouse, given.listen) == ("nats://127.0.0.1:9", "http://c:8123", "127.0.0.1:5")
    assert given.nats_key_file == Path("/keys/a")
    assert settings.value("telemetry.log_level") == "DEBUG"
    assert build_policy(settings.section("policy")) == Policy(lookback_ms=3 * 86_400_000)


def test_every_setting_can_be_set_in_each_place(tmp_path: Path) -> None:
    """The same value by --set, by its variable and in the file: named in all the same way."""
    for setting in SETTINGS:
        sample = setting.kind.example
        if setting.kind.files or setting.path in ("identity.issuer", "identity.audience", "repair.webhook"):
            continue  # reading them looks at files, or at each other
        field = (setting.path, sample)
        by_set = collect(role="", environment={}, sets=[f"{setting.path}={sample}"])
        by_variable = collect(role="", environment={setting.variable: sample})
        assert not by_set[1], field
        assert not by_variable[1], field
        assert by_set[0].value(setting.path) == by_variable[0].value(setting.path), field
        section, _, key = setting.path.rpartition(".")
        text = f"{section}:\n  {key}: {sample}\n" if section else f"{key}: {sample}\n"
        by_file = collect(role="", config=written(tmp_path, text), environment={})
        assert not by_file[1], (field, by_file[1])
        assert by_file[0].value(setting.path) == by_set[0].value(setting.path), field


def test_every_role_has_help() -> None:
    for role in (*ROLES, CONSOLE, ENGINE):
        parser = argparse.ArgumentParser()
        add_flags(parser, role)
        told = parser.format_help()
        assert all(setting.flag in told for setting in settings_of(role) if setting.flag != "--data")


def test_names_are_used_once() -> None:
    variables = [name for setting in SETTINGS for name in (setting.variable, *setting.older)]
    assert len(set(variables)) == len(variables)
    assert len(BY_PATH) == len(SETTINGS)
    for role in (*ROLES, CONSOLE, ENGINE):
        flags = [setting.flag for setting in settings_of(role) if setting.flag]
        used = [flag for flag in flags if flag != "--data"]
        assert len(set(used)) == len(used), role
    assert {setting.section for setting in SETTINGS} == set(SECTIONS)
    assert {f"policy.{name.removesuffix('_ms')}" for name in KNOBS} <= set(BY_PATH)


def test_every_default_is_a_value_of_its_kind() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            setting.kind.read(setting.default, setting.path)
    assert build_policy({each.key: each.default for each in SETTINGS if each.section == "policy"}) == Policy()


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "clutser: x\nlisten: x\nnats: {key_fil: x}\npolicy: {lookback: 7 days, ratio_margin: 1000, lokback: 3}\n"
        "clickhouse: {url: foo, token_file: /nowhere/token}\nagent: {hosts: 2x2, cluster_file: c.yaml, provider: amd}\n"
        "identity: {issuer: 'https://a.example'}\nsignals: 7\n",
    )
    _, wrong = collect(role="", config=file, environment={}, look=True)
    said = "\n".join(map(str, wrong))
    for words in (
        "clutser: unknown key; did you mean cluster?",
        "listen: unknown key; did you mean gateway.listen or console.listen?",
        "nats.key_fil: unknown key; did you mean key_file?",
        "policy.lokback: unknown key; did you mean lookback?",
        "policy.lookback: '7 days' is not a duration; write a duration such as 90s",
        "policy.ratio_margin: 1000 is out of range; give 0 to 100",
        "clickhouse.url: 'foo' is no address; write http://",
        "clickhouse.token_file: /nowhere/token cannot be read: No such file or directory",
        "agent.cluster_file: given beside agent.hosts",
        "agent.provider: 'amd' is not known; use virtual, nvidia",
        "identity.audience: missing",
        "signals: not a mapping",
    ):
        assert words in said, words
    assert len(wrong) == 13  # cluster_file cannot be read either
    with pytest.raises(Refusal, match=r"\(and 1[0-9] more: `tenure config check` lists all\)"):
        load_settings(role="", config=file, environment={})


@pytest.mark.parametrize(
    ("text", "field", "named"),
    [
        ("clickhouse: {token: hunter2}", "clickhouse.token", "clickhouse.token_file"),
        ("nats: {password: hunter2}", "nats.password", "nats.key_file"),
        ("repair: {secret: hunter2}", "repair.secret", "repair.secret_file"),
        ("placer: {run_key: hunter2}", "placer.run_key", "placer.run_key_file"),
        ("nats: {url: 'nats://u:hunter2@h:1'}", "nats.url", "_file"),
        ("clickhouse: {url: 'http://u:hunter2@h:1'}", "clickhouse.url", "_file"),
        (
            "repair: {command: 'mend SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU'}",
            "repair.command",
            "_file",
        ),
    ],
)
def test_a_secret_is_refused_and_not_shown(tmp_path: Path, text: str, field: str, named: str) -> None:
    _, wrong = collect(role="", config=written(tmp_path, text), environment={})
    assert [each.field for each in wrong] == [field]
    assert "secret" in wrong[0].problem
    assert named in wrong[0].fix
    assert "hunter2" not in str(wrong[0])
    assert "SUAMLK" not in str(wrong[0])


def test_a_variable_that_is_no_setting_is_refused() -> None:
    kubernetes = {
        "TENURE_NATS_SERVICE_HOST": "10.0.0.1",
        "TENURE_NATS_SERVICE_PORT_CLIENT": "4222",
        "TENURE_GATEWAY_PORT": "tcp://10.0.0.2:50051",
        "TENURE_GATEWAY_PORT_50051_TCP_ADDR": "10.0.0.2",
    }
    kubernetes["TENURE_NATS_BUDGET"] = "U" + 55 * "A"  # of deploy/nats/users.conf
    others = {"TENURE_SERVER": "h:1", "TENURE_TOKEN": "t", "TENURE_JOB_ID": "j", "TENURE_REPAIR_SSH": "ssh"}
    assert collect(role="", environment={**kubernetes, **others, "TENURE_NATS_URL": " "})[1] == []
    _, wrong = collect(role="", environment={"TENURE_POLICY_LOKBACK": "1d", "TENURE_CLICKHOUSE_TOKEN": "hunter2"})
    assert [each.field for each in wrong] == ["TENURE_CLICKHOUSE_TOKEN", "TENURE_POLICY_LOKBACK"]
    assert "did you mean TENURE_POLICY_LOOKBACK?" in wrong[1].fix
    assert "hunter2" not in str(wrong[0])


def test_of_two_that_stand_for_each_other_the_nearer_one_counts(tmp_path: Path) -> None:
    file = written(tmp_path, "agent: {cluster_file: c.yaml}\n")
    given, _ = parsed("agent", "--config", str(file), "--hosts", "2x2")
    assert (given.hosts, given.cluster_file) == ("2x2", None)


def test_an_empty_flag_says_that_there_is_none(tmp_path: Path) -> None:
    file = written(tmp_path, "nats: {ca: /elsewhere/ca.pem}\n")
    given, settings = parsed("budget", "--config", str(file), "--nats-ca", "")
    assert given.nats_ca is None
    assert settings.values("nats")["ca"] is None


def test_a_role_has_its_name_in_paths(tmp_path: Path) -> None:
    file = written(tmp_path, "data: /var/lib/tenure/{role}\nnats: {key_file: '/keys/nats-{role}.seed'}\n")
    given, _ = parsed("ranker", "--config", str(file))
    assert (given.data, given.nats_key_file) == (Path("/var/lib/tenure/ranker"), Path("/keys/nats-ranker.seed"))
    _, wrong = collect(role="", config=file, environment={}, look=True)
    assert [str(each).split(" ")[1] for each in wrong] == ["/keys/nats-gateway.seed"]


def test_a_role_looks_only_at_files_that_it_reads(tmp_path: Path) -> None:
    file = written(tmp_path, "identity: {tls_key: /nowhere/key, tls_certificate: /nowhere/pem}\n")
    load_settings(role="placer", config=file, environment={})
    with pytest.raises(Refusal, match=r"identity\.tls_"):
        load_settings(role="gateway", config=file, environment={})


def test_a_role_that_asks_no_database_is_not_asked_for_its_password(tmp_path: Path) -> None:
    file = written(tmp_path, "clickhouse: {token_file: nowhere/password}\n")
    for role, asked in (("agent", False), ("placer", False), ("journal", True), ("gateway", True), ("", True)):
        _, wrong = collect(role=role, config=file, environment={}, look=True)
        assert [each.field for each in wrong] == ["clickhouse.token_file"] * asked, role


def test_the_example_is_a_file_and_so_is_it_with_every_key(tmp_path: Path) -> None:
    assert collect(role="", config=written(tmp_path, example()), environment={})[1] == []
    whole = re.sub(r"^#(?=\S|  )", "", example(), flags=re.MULTILINE)
    document = parse_yaml(whole.encode(), name="example")
    assert isinstance(document, dict)
    keys = {
        f"{section}.{key}" if isinstance(below, dict) else section
        for section, below in document.items()
        for key in (below if isinstance(below, dict) else [""])
    }
    assert keys == set(BY_PATH)
