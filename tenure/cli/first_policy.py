"""The policy at the start of `tenure up`: the log's, with the knobs that `--set` names."""

from collections.abc import Iterator, Mapping

from tenure.cli.connection import Found, caller, client_of
from tenure.domain.policy import KNOBS, MAPPINGS, Policy, in_words, mapping_in_words, spoken
from tenure.runtime.data_dir import Endpoint


def settle_policy(endpoint: Endpoint, knobs: Mapping[str, str], *, at_start: Policy) -> Iterator[str]:
    """Give these knobs their values. Says what that changed, and where the log's policy is not `at_start`.

    What is read at a start only has its effect by the start itself. Raises `ServerError`.
    """
    changing = {spoken(name): in_words(name, getattr(at_start, name)) for name in KNOBS if not KNOBS[name].fixed}
    changing |= {name: mapping_in_words(name, at_start) for name in MAPPINGS}
    wanted = {name: value for name, value in knobs.items() if name in changing}
    with client_of(Found(address=endpoint.address, endpoint=endpoint)) as client:
        if wanted:
            answer = client.set_policy(wanted, merge=True, user=caller(), comment="tenure up --set")
            told = ", ".join(f"{each.name} {each.before} -> {each.after}" for each in answer.changes)
            if told:
                yield f"policy: {told} (position {answer.position})"
        present = client.policy()
    different = [
        f"{each.name} is {each.value} and not {changing[each.name]}"
        for each in present.knobs
        if each.name in changing and each.value != changing[each.name]
    ]
    if present.position and different:
        yield f"policy: the log's counts: {', '.join(different)} (tenure config apply changes it)"
