"""What has to fit together in a section, beyond each value by itself."""

from collections.abc import Callable, Mapping

from tenure.domain.refusal import Refusal
from tenure.log.options import log_access
from tenure.runtime.identity_options import IDENTITY, build_identity_options
from tenure.runtime.repair_options import REPAIR, build_repair_options
from tenure.runtime.signal_options import SIGNALS, build_signal_options

_READERS: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "nats": lambda values: log_access(values, client="tenure"),
    IDENTITY: build_identity_options,
    REPAIR: build_repair_options,
    SIGNALS: lambda values: build_signal_options(values, real_host=False),
}


def check_together(section: str, values: Mapping[str, object]) -> Refusal | None:
    """What is wrong with these values of a section taken together; each is right by itself."""
    try:
        if section in _READERS:
            _READERS[section](values)
    except Refusal as refusal:
        return refusal
    return None
