"""`--set key=value` of a simulation: the knobs of the policy and those of the simulated work, told apart by name."""

from collections.abc import Iterable, Mapping

import msgspec

from simulator.simulation import Work
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import format_duration, parse_duration
from tenure.runtime.options import build_policy, knob_names, parse_settings

UNPLAYED = ("heartbeat", "suspect_after", "lost_after", "block_lost_after")
"""Knobs of the policy that change nothing: see `simulator.simulation.without_silence`."""
_UNIT = "_ms"


def parse_knobs(settings: Iterable[str]) -> tuple[Policy, Work]:
    """The policy and the work with `settings` over the defaults. Raises `Refusal`; an unknown knob lists all."""
    values, policy_knobs, work_knobs = parse_settings(settings), knob_names(), work_knob_names()
    for name in values:
        if name not in {**policy_knobs, **work_knobs}:
            known = [f"{knob} ({default})" for knob, default in sorted({**policy_knobs, **work_knobs}.items())]
            near = did_you_mean(name, [*policy_knobs, *work_knobs])
            raise Refusal(field="--set", problem=f"unknown knob {shown(name)}", fix=f"{near}known: {', '.join(known)}")
    of_work = {name: value for name, value in values.items() if name in work_knobs}
    of_policy = {name: value for name, value in values.items() if name not in of_work}
    return build_policy(of_policy), _build_work(of_work)


def work_knob_names() -> dict[str, str]:
    """The knobs of simulated work as people write them, each with its default in words."""
    return {field.name.removesuffix(_UNIT): format_duration(field.default) for field in msgspec.structs.fields(Work)}


def _build_work(values: Mapping[str, object]) -> Work:
    lengths = {name: parse_duration(str(value), field=name) for name, value in values.items()}
    if lengths.get("checkpoint_interval") == 0:
        raise Refusal(field="checkpoint_interval", problem="0 would checkpoint without end", fix="give a positive one")
    return Work(**{name + _UNIT: length for name, length in lengths.items()})
