"""The policy at the start of `tenure up`: the log's, with the knobs that `--set` names."""

from collections.abc import Mapping

from tenure.cli.connection import Found, caller, client_of
from tenure.domain.policy import KNOBS, spoken
from tenure.runtime.data_dir import Endpoint


def settle_policy(endpoint: Endpoint, knobs: Mapping[str, str]) -> str:
    """Give these knobs their values; a line to say if that changed something. Raises `ServerError`.

    What is read at a start only has its effect by the start itself.
    """
    fixed = {spoken(name) for name, knob in KNOBS.items() if knob.fixed}
    wanted = {name: value for name, value in knobs.items() if name not in fixed}
    if not wanted:
        return ""
    with client_of(Found(address=endpoint.address, endpoint=endpoint)) as client:
        answer = client.set_policy(wanted, merge=True, user=caller(), comment="tenure up --set")
    told = ", ".join(f"{each.name} {each.before} -> {each.after}" for each in answer.changes)
    return f"policy: {told} (position {answer.position})" if told else ""
