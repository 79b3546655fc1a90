"""Names of things. Each is a `NewType`, so a host can never be passed where a job is meant."""

from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
"""`<job>.<number>`, numbered from 1 in its job."""
HostId = NewType("HostId", str)
BudgetPath = NewType("BudgetPath", str)
"""A budget of the tree, written as a path: `science/chem`."""
UserName = NewType("UserName", str)
FactId = NewType("FactId", str)
Position = NewType("Position", int)
"""Place of a fact in the log: 1, 2, 3 ... without gaps inside one log; 0 is before the first."""

LOG_START = Position(0)


def run_id(*, job: JobId, number: int) -> RunId:
    """The id of attempt `number` (from 1) of `job`."""
    return RunId(f"{job}.{number}")


def job_of(run: RunId) -> JobId:
    """The job that `run` is an attempt of."""
    return JobId(run.rpartition(".")[0])
