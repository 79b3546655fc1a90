"""Every setting of every process, in one table: flags, variables, keys of the file and docs/configuration.md follow."""

from collections.abc import Iterator, Mapping

from tenure.domain.policy import KNOBS, MAPPINGS, Policy, in_words, spoken
from tenure.domain.shape import GPUS_PER_HOST_MAX
from tenure.log.options import INSECURE, LOG_OPTIONS, URL
from tenure.runtime.settings.console import CONSOLE, CONSOLE_SECTIONS, CONSOLE_SETTINGS
from tenure.runtime.settings.kinds import (
    ADDRESS,
    DECIMAL,
    FILE,
    LEVEL,
    MAPPING_KINDS,
    PATH,
    SERVERS,
    SIZE,
    TEXT,
    TRUTH,
    WEB,
    choice,
    knob_kind,
    number,
)
from tenure.runtime.settings.outside import IDENTITY_SETTINGS, REPAIR_SETTINGS, SIGNAL_SETTINGS
from tenure.runtime.settings.setting import Setting

POLICY = "policy"
ROLES = ("gateway", "budget", "ranker", "placer", "health", "agent", "journal", "forecast")
"""The roles that share a log."""
ENGINE = "clickhouse"
"""The role that serves the embedded engine; the section `clickhouse:` says how everybody reaches a database."""

TELEMETRY = "telemetry"

SECTIONS: Mapping[str, str] = {
    "": "What every process needs.",
    "nats": "The log's servers. `tenure up` runs its own and does not read this.",
    "clickhouse": "The database of reports and history. Left out, `tenure up` runs the embedded one.",
    "gateway": "Where people's calls are answered.",
    CONSOLE: "Where people's browsers are answered, and the gateway that the console asks.",
    "placer": "The process that places jobs.",
    "agent": "The process that runs jobs on a host, or on virtual hosts.",
    "engine": "The embedded ClickHouse (`tenure serve clickhouse`).",
    TELEMETRY: "What a process says of itself.",
    POLICY: "The knobs of the policy. They are facts of the log: see [changing the policy](#changing-the-policy).",
    "signals": "Which signals of a host's health its agent reads: see [health](health.md#options).",
    "repair": "The repair plug of the health role: see [health](health.md#repair).",
    "identity": "Where the gateway knows callers from, and its TLS: see [security](security.md#the-section-identity).",
}
"""The sections of the file in their order, and what each is about."""

_TOP = (
    Setting(path="cluster", kind=TEXT, what="name of the log", default="tenure", flag="--cluster"),
    Setting(
        path="data",
        example="/var/lib/tenure/{role}",
        kind=PATH,
        what="folder for snapshots and other local files; `{role}` stands for the name of the role",
        flag="--data",
    ),
)
_NATS_EXAMPLES = {
    "key_file": "/etc/tenure/keys/nats-{role}.seed",
    "ca": "/etc/tenure/ca.pem",
    "cert": "/etc/tenure/tenure.pem",
    "cert_key": "/etc/tenure/keys/tenure.key",
}
_NATS = (
    *(
        Setting(
            path=f"nats.{option.name}",
            kind=SERVERS if option.name == "url" else FILE,
            what=option.what,
            default=URL if option.name == "url" else None,
            example=_NATS_EXAMPLES.get(option.name, ""),
            flag=option.flag,
            older=(option.variable,) if option.name == "url" else (),
            secret=option.name in ("key_file", "cert_key"),
        )
        for option in LOG_OPTIONS
    ),
    Setting(path="nats.insecure", kind=TRUTH, what=INSECURE.what, default=False, flag=INSECURE.flag),
)
_CLICKHOUSE = (
    Setting(
        path="clickhouse.url",
        example="http://clickhouse:8123",
        kind=WEB,
        what="http://host:port of ClickHouse",
        flag="--clickhouse",
        older=("TENURE_CLICKHOUSE",),
    ),
    Setting(
        path="clickhouse.token_file",
        example="/etc/tenure/keys/clickhouse.token",
        kind=FILE,
        what="file with its password",
        flag="--clickhouse-token-file",
        opened_by=("gateway", "ranker", "journal", CONSOLE, "up"),
        secret=True,
    ),
    Setting(
        path="clickhouse.cluster",
        example="tenure",
        kind=TEXT,
        what="ClickHouse's cluster (of its `remote_servers`) whose servers all get the tables, replicated",
        default_in_words="one server",
        flag="--clickhouse-cluster",
        roles=("journal",),
    ),
)
_GATEWAY = (
    Setting(
        path="gateway.listen",
        kind=TEXT,
        what="address and port; port 0: any free one",
        default="127.0.0.1:50051",
        default_in_words="127.0.0.1:50051; 127.0.0.1:7733 for `tenure up`",
        flag="--listen",
        older=("TENURE_LISTEN",),
        roles=("gateway", "up"),
    ),
)
_PLACER = (
    Setting(
        path="placer.run_key_file",
        example="/etc/tenure/keys/runs.key",
        kind=FILE,
        what="PEM file of the Ed25519 key that signs what is started",
        flag="--run-key-file",
        roles=("placer",),
        secret=True,
    ),
)
_AGENT = (
    Setting(
        path="agent.hosts",
        example="16x8",
        kind=TEXT,
        what="virtual hosts, such as 16x8 (hosts x GPUs)",
        default_in_words="1x8; 16x8 for `tenure up`",
        flag="--hosts",
        roles=("agent", "up"),
        instead_of="agent.cluster_file",
    ),
    Setting(
        path="agent.cluster_file",
        example="/etc/tenure/cluster.yaml",
        kind=FILE,
        what="cluster.yaml whose hosts are virtual and all here",
        flag="--cluster-file",
        roles=("agent", "up"),
        instead_of="agent.hosts",
    ),
    Setting(
        path="agent.provider",
        kind=choice("virtual", "nvidia", "cpus"),
        what="where GPUs come from; cpus: a real host that counts CPUs instead",
        default="virtual",
        flag="--provider",
        roles=("agent", "up"),
    ),
    Setting(
        path="agent.host",
        example="h000",
        kind=TEXT,
        what="name of this host (a real one)",
        default_in_words="the machine's",
        flag="--host",
        roles=("agent",),
    ),
    Setting(
        path="agent.host_cluster",
        example="dev",
        kind=TEXT,
        what="its cluster of hosts",
        default_in_words="the type of its GPUs",
        flag="--host-cluster",
        roles=("agent",),
    ),
    Setting(
        path="agent.cpus",
        kind=number(1, GPUS_PER_HOST_MAX, example="16"),
        what="CPUs that it counts (provider cpus)",
        default_in_words=f"the machine's, at most {GPUS_PER_HOST_MAX}",
        flag="--cpus",
        roles=("agent",),
    ),
    Setting(
        path="agent.block",
        kind=TEXT,
        what="its block, such as rack1 or row1/rack1",
        default="b0",
        flag="--block",
        roles=("agent",),
    ),
    Setting(
        path="agent.address",
        kind=TEXT,
        example="10.0.0.17",
        what="where other hosts reach this one (a real one): MASTER_ADDR of its gangs",
        default_in_words="the address it has towards the log's servers",
        flag="--address",
        roles=("agent",),
    ),
    Setting(
        path="agent.checkpoints",
        example="/shared/checkpoints",
        kind=PATH,
        what="folder of checkpoint directories, shared between hosts",
        default_in_words="`checkpoints` in the data folder",
        flag="--checkpoints",
        roles=("agent",),
    ),
    Setting(
        path="agent.on_exit",
        kind=choice("leave", "stop"),
        what="what becomes of running replicas on SIGTERM",
        default="leave",
        flag="--on-exit",
        roles=("agent",),
    ),
    Setting(
        path="agent.run_keys_file",
        example="/etc/tenure/keys/runs.pub",
        kind=FILE,
        what="PEM file of the public keys whose signed runs are started",
        flag="--run-keys-file",
        roles=("agent",),
    ),
    Setting(
        path="agent.run_as",
        kind=choice("submitter", "agent"),
        what="whose processes jobs are",
        default_in_words="their submitter's on a real host for root, else the agent's",
        flag="--run-as",
        roles=("agent",),
    ),
    Setting(
        path="agent.memory_per_gpu",
        example="120GiB",
        kind=SIZE,
        what="most memory of a replica (cgroup v2)",
        default_in_words="no limit",
        flag="--memory-per-gpu",
        roles=("agent",),
    ),
    Setting(
        path="agent.pids_max",
        kind=number(0, 1 << 22, example="4096"),
        what="most processes of a replica (cgroup v2); 0: no limit",
        default=0,
        flag="--pids-max",
        roles=("agent",),
    ),
)
_ENGINE = (
    Setting(
        path="engine.data",
        example="/var/lib/tenure/clickhouse",
        kind=PATH,
        what="folder of the database; one process owns it",
        flag="--data",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.port",
        kind=number(0, 65535, example="8123"),
        what="port on 127.0.0.1; 0: a free one",
        default=0,
        flag="--port",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.token_file",
        example="/etc/tenure/keys/clickhouse.token",
        kind=PATH,
        what="the password of every client; made if missing",
        default_in_words="`token` in its folder",
        flag="--token-file",
        roles=(ENGINE,),
        secret=True,
    ),
    Setting(
        path="engine.memory",
        kind=SIZE,
        what="the engine's memory",
        default_in_words="4GiB, at most a quarter of the machine's",
        flag="--memory",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.fsync",
        kind=TRUTH,
        what="sync every insert to disk before it is acknowledged, so that it survives a power loss",
        default=True,
        flag="--fsync",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.connections",
        kind=number(2, 10_000, example="64"),
        what="open connections, one thread each",
        default=64,
        flag="--connections",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.body_max",
        kind=SIZE,
        what="largest request body, uncompressed",
        default="1GiB",
        flag="--body-max",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.statement_seconds",
        kind=number(1, 86_400, example="600"),
        what="longest statement unless it asks for more",
        default=600,
        flag="--statement-seconds",
        roles=(ENGINE,),
    ),
    Setting(
        path="engine.drain_seconds",
        kind=DECIMAL,
        what="how long a stop waits for statements",
        default=10.0,
        flag="--drain-seconds",
        roles=(ENGINE,),
    ),
)
_TELEMETRY = (
    Setting(
        path="telemetry.log_level",
        kind=LEVEL,
        what="the least of what is written to stderr",
        default="INFO",
        older=("TENURE_LOG_LEVEL",),
    ),
    Setting(
        path="telemetry.log_format",
        kind=choice("text", "json"),
        what="lines for people, or one JSON object a line",
        default="text",
        older=("TENURE_LOG_FORMAT",),
    ),
    Setting(
        path="telemetry.metrics_listen",
        kind=ADDRESS,
        what="where Prometheus is answered, without a password; port 0: any free one; `tenure up`: from there on",
        default_in_words="nowhere",
        flag="--metrics-listen",
        older=("TENURE_METRICS_LISTEN",),
    ),
)


def _knobs() -> Iterator[Setting]:
    usual = Policy()
    for name, knob in KNOBS.items():
        default = getattr(usual, name)
        yield Setting(
            path=f"{POLICY}.{spoken(name)}",
            kind=knob_kind(name, default),
            what=knob.what,
            default=in_words(name, default),
            fixed=knob.fixed,
        )
    for name, what in MAPPINGS.items():
        yield Setting(path=f"{POLICY}.{name}", kind=MAPPING_KINDS[name], what=what, default="{}")


SETTINGS: tuple[Setting, ...] = (
    *_TOP,
    *_NATS,
    *_CLICKHOUSE,
    *_GATEWAY,
    *CONSOLE_SETTINGS,
    *_PLACER,
    *_AGENT,
    *_ENGINE,
    *_TELEMETRY,
    *_knobs(),
    *SIGNAL_SETTINGS,
    *REPAIR_SETTINGS,
    *IDENTITY_SETTINGS,
)
BY_PATH: Mapping[str, Setting] = {setting.path: setting for setting in SETTINGS}


def settings_of(role: str) -> tuple[Setting, ...]:
    """The settings that `role` reads, in order; empty: all."""
    if role == ENGINE:  # it stands alone: no log, no policy
        return tuple(each for each in SETTINGS if ENGINE in each.roles or each.section == TELEMETRY)
    if role == CONSOLE:  # it knows no log and no policy, either
        return tuple(each for each in SETTINGS if each.is_read_by(role) and each.section in CONSOLE_SECTIONS)
    return tuple(each for each in SETTINGS if each.is_read_by(role))
