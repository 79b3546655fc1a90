"""What is not shown to everybody who may look: the values in a job's environment, which often are keys to elsewhere."""

import dataclasses

import msgspec

from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Fact
from tenure.events.intake import JobSubmitted
from tenure.events.placing import RunAssigned

HIDDEN = "(hidden)"


def whose(fact: Fact) -> tuple[BudgetPath, UserName] | None:
    """The budget and the owner of the job whose environment the fact holds; None if it holds none."""
    match fact:
        case JobSubmitted() | JobAdmitted():
            return (fact.spec.budget, fact.spec.user) if fact.spec.launch.environment else None
        case RunAssigned():
            return (fact.budget, fact.user) if fact.launch.environment else None
    return None


def without_values(fact: Fact) -> Fact:
    """The fact with the names in its environment, and no values."""
    match fact:
        case JobSubmitted() | JobAdmitted():
            return msgspec.structs.replace(fact, spec=_discreet(fact.spec))
        case RunAssigned():
            return msgspec.structs.replace(fact, launch=_hidden(fact.launch))
    return fact


def _discreet(spec: JobSpec) -> JobSpec:
    return dataclasses.replace(spec, launch=_hidden(spec.launch))


def _hidden(launch: Launch) -> Launch:
    return dataclasses.replace(launch, environment=dict.fromkeys(launch.environment, HIDDEN))
