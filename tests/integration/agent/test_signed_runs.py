"""An agent starts what the placer signed, and of anything else says that it did not."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from services.agent.starting import Rules
from tenure.domain.ids import FactId, JobId, RunId
from tenure.domain.job import Launch
from tenure.events.placing import RunAssigned
from tenure.events.reports import ReplicasExited
from tenure.log.memory import MemoryLog
from tenure.runtime.run_signing import load_signer, load_trust, make_signing_keys
from tests.integration.agent.conftest import until
from tests.integration.agent.live import HOST, exits, living
from tests.unit.agent.runs import assigned


def run_of(job: str, mark: Path) -> RunAssigned:
    """A run that leaves a mark."""
    launch = Launch(command=("/bin/touch", str(mark)))
    return assigned(HOST, id=FactId(f"{job}-assigned"), run=RunId(f"{job}.1"), job=JobId(job), launch=launch)


def test_only_signed_runs_are_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours, others = make_signing_keys(tmp_path / "ours"), make_signing_keys(tmp_path / "others")
    rules, log = Rules(trust=load_trust(ours[1])), MemoryLog()
    marks = {job: tmp_path / job for job in ("unsigned", "foreign", "changed", "signed")}
    made = {job: run_of(job, mark) for job, mark in marks.items()}
    changed = load_signer(ours[0]).seal(run_of("changed", tmp_path / "elsewhere"))
    assert isinstance(changed, RunAssigned)
    facts = [
        made["unsigned"],
        load_signer(others[0]).seal(made["foreign"]),
        msgspec.structs.replace(changed, launch=made["changed"].launch),
        load_signer(ours[0]).seal(made["signed"]),
    ]

    async def scene() -> None:
        async with living(log, tmp_path / "agent", heartbeat_ms=50, rules=rules):
            log.append_now(facts)
            await until(lambda: exits(log) == len(facts))

    asyncio.run(scene())
    assert [job for job, mark in marks.items() if mark.exists()] == ["signed"]
    said = {entry.fact.job: entry.fact.replicas[0] for entry in log.recorded if isinstance(entry.fact, ReplicasExited)}
    for job, why in (("unsigned", "not signed"), ("foreign", "no key that"), ("changed", "changed afterwards")):
        gone = said[JobId(job)]
        assert gone.started_at is None and gone.lost
        assert why in (gone.error or "")
        assert f"{job}.1 replica 0 is not started" in caplog.text
    assert said[JobId("signed")].code == 0
