"""The rows of sections whose values one module reads together: signals, repair, identity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tenure.domain.units import format_duration
from tenure.runtime import identity_options, repair_options, signal_options
from tenure.runtime.settings.setting import Kind, Setting

_Readers = Mapping[str, Callable[[object, str], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Where the rows of a section come from, and who reads it."""

    name: str
    readers: _Readers
    roles: tuple[str, ...]

    def row(
        self,
        key: str,
        kind: str,
        example: str,
        what: str,
        *,
        default: object = None,
        words: str = "",
        file: bool = False,
    ) -> Setting:
        """One key. `file`: reading it looks at a file."""
        read = self.readers[key]
        return Setting(
            path=f"{self.name}.{key}",
            kind=Kind(name=kind, example=example, read=lambda value, _: read(value, key), files=file),
            what=what,
            default=default,
            default_in_words=words,
            roles=self.roles,
            secret=key in ("tls_key", "secret_file"),
            private=key == "webhook",
        )


_SIGNALS = _Section(name=signal_options.SIGNALS, readers=signal_options.READERS, roles=("agent", "up"))
_REPAIR = _Section(name=repair_options.REPAIR, readers=repair_options.READERS, roles=("health", "up"))
_IDENTITY = _Section(name=identity_options.IDENTITY, readers=identity_options.READERS, roles=("gateway", "up"))

_SOURCES = {
    "kernel": "the kernel's log",
    "nvml": "NVIDIA's library",
    "fabric": "the log of the fabric manager",
    "ports": "InfiniBand and RoCE ports",
    "disks": "file systems and their room",
    "clock": "the time synchronisation",
    "smi": "nvidia-smi",
    "dcgm": "DCGM's diagnosis",
}

SIGNAL_SETTINGS = (
    *(
        _SIGNALS.row(
            source,
            "duration, or off",
            "5s" if usual is None else format_duration(usual),
            f"how often {_SOURCES[source]} is read",
            words="off" if usual is None else f"{format_duration(usual)} on real hosts, else off",
        )
        for source, usual in signal_options.INTERVALS.items()
    ),
    _SIGNALS.row(
        "host", "name", "h000", "which of the agent's hosts the machine's signals are of", words="its first one"
    ),
    _SIGNALS.row(
        "kernel_log", "path", "/dev/kmsg", "where the kernel's log is read; a file may be rotated", words="/dev/kmsg"
    ),
    _SIGNALS.row(
        "fabric_log",
        "path",
        "/var/log/fabricmanager.log",
        "where the fabric manager's log is read",
        words="/var/log/fabricmanager.log",
    ),
    _SIGNALS.row("sysfs", "path", "/host/sys", "for a container that sees the host's elsewhere", words="/sys"),
    _SIGNALS.row("proc", "path", "/host/proc", "the same for /proc", words="/proc"),
    _SIGNALS.row("paths", "list of paths", "[/, /scratch]", "file systems whose room is watched", words="[/]"),
    _SIGNALS.row("ports_up", "list of ports", "[mlx5_0/1]", "ports that must be up from the start", words="none"),
    _SIGNALS.row("gpus", "number, 0 to 1024", "8", "how many GPUs there should be", words="as many as were seen"),
    _SIGNALS.row("smi_command", "list of words", "[nvidia-smi, -q]", "what `smi` runs", words="[nvidia-smi, -q]"),
    _SIGNALS.row(
        "dcgm_command",
        "list of words",
        '[dcgmi, diag, -r, "1"]',
        "what `dcgm` runs",
        words='[dcgmi, diag, -r, "1"]',
    ),
    _SIGNALS.row(
        "checks",
        "list of checks",
        "[{name: nfs, command: [/opt/checks/nfs, /home], every: 10m, limit: 30s}]",
        "custom checks: see [health](health.md#custom-checks)",
        words="none",
    ),
)
REPAIR_SETTINGS = (
    _REPAIR.row("command", "command", "/opt/repair/mend --now", "what repairs a host; or a webhook", words="none"),
    _REPAIR.row("webhook", "http(s) address", "https://ops.example.org/mend", "what is asked instead", words="none"),
    _REPAIR.row(
        "secret_file",
        "file",
        "/etc/tenure/repair.secret",
        "the secret that signs what the webhook is sent",
        file=True,
    ),
    _REPAIR.row("time_limit", "duration", "30m", "how long one attempt may take", default="30m"),
    _REPAIR.row("attempts", "number, 1 or more", "5", "so often what may pass (a time-out) is tried", default=5),
    _REPAIR.row("test", "true or false", "true", "test a repaired host before it takes runs", default=True),
)
IDENTITY_SETTINGS = (
    _IDENTITY.row("issuer", "https address", "https://id.example.org", "OIDC: the issuer, as tokens have it in `iss`"),
    _IDENTITY.row("audience", "text", "tenure", "the audience that tokens for tenure have"),
    _IDENTITY.row("user_claim", "name of a claim", "email", "which claim is the user", default="sub"),
    _IDENTITY.row("groups_claim", "name of a claim", "groups", "which claim has the groups", default="groups"),
    _IDENTITY.row("roles_claim", "name of a claim", "roles", "which claim has the roles", default="roles"),
    _IDENTITY.row(
        "roles", "mapping to roles", "{gpu-admins: admin}", "what values of the roles claim mean here", words="nothing"
    ),
    _IDENTITY.row(
        "leeway", "duration, 5m at most", "30s", "how far the clocks of issuer and gateway may be apart", default="30s"
    ),
    *(
        _IDENTITY.row(key, "list of users and `group:NAME`", "[ana, group:ops]", f"who is {role}", words="nobody")
        for key, role in (
            ("admins", "an admin"),
            ("operators", "an operator"),
            ("viewers", "a viewer"),
            ("agents", "an agent"),
        )
    ),
    _IDENTITY.row(
        "client_ca", "file", "/etc/tenure/clients.pem", "who signs the certificates that clients must have", file=True
    ),
    _IDENTITY.row(
        "tls_certificate",
        "file",
        "/etc/tenure/gateway.pem",
        "the gateway's certificate; with it, it speaks TLS",
        file=True,
    ),
    _IDENTITY.row("tls_key", "file", "/etc/tenure/gateway.key", "its key", file=True),
    _IDENTITY.row(
        "tls_ca",
        "file",
        "/etc/tenure/ca.pem",
        "what clients on this machine check it against",
        words="what the system trusts",
        file=True,
    ),
    _IDENTITY.row(
        "certificate_name",
        "common-name, email, uri or dns",
        "common-name",
        "what of a client's certificate is the user",
        default="common-name",
    ),
    _IDENTITY.row(
        "os_users",
        "true or false",
        "false",
        "know callers on this machine by the user of their connection",
        words="on loopback, without issuer and client CA",
    ),
    _IDENTITY.row(
        "insecure_plaintext",
        "true or false",
        "false",
        "answer without TLS where others reach it: something else encrypts it",
        default=False,
    ),
)
