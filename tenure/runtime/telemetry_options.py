"""How a process says what it does: where Prometheus asks it for metrics, how its log lines are written.

Everything else of OpenTelemetry is told by its own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` and
so on), which its SDK reads.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from tenure.runtime.settings.given import Settings


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where something listens; port 0: any free one."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """What a process was told. `metrics_listen` None: nobody can ask for metrics."""

    metrics_listen: Address | None = None
    log_format: LogFormat = LogFormat.TEXT
    log_level: int = logging.INFO


def telemetry_options(settings: "Settings") -> TelemetryOptions:
    """The section `telemetry:` of a process's settings. Raises `Refusal`."""
    values = settings.values("telemetry")
    listen = values["metrics_listen"]
    return TelemetryOptions(
        metrics_listen=listen if isinstance(listen, Address) else None,
        log_format=LogFormat(str(values["log_format"])),
        log_level=logging.getLevelNamesMapping()[str(values["log_level"])],
    )


def parse_listen(text: str, field: str) -> Address:
    """`127.0.0.1:9464` or `[::1]:9464`. Raises `Refusal`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise Refusal(field=field, problem=f"{text[:64]!r} is no address", fix="write 127.0.0.1:9464")
    return Address(host=host, port=int(port))
