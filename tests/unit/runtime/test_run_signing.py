"""Signed runs: what a signature covers, whose is believed, and that a changed run is not."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.ids import FactId, HostId, UserName
from tenure.domain.job import Launch, ReplicaPlace
from tenure.domain.refusal import Refusal
from tenure.events.placing import RunAssigned
from tenure.log import codec
from tenure.runtime.run_signing import Trust, load_signer, load_trust, make_signing_keys
from tests.contract.log_facts import runs
from tests.unit.agent.runs import assigned

LAUNCH = Launch(command=("python", "train.py"), environment={"B": "2", "A": "1"})
RUN = msgspec.structs.replace(assigned("h0", "h1", launch=LAUNCH), id=FactId("placer-7-0"), cluster="h100")
NOT_SIGNED = {"cause", "name", "why", "signature"}
"""What starts nothing: labels, and the reasons given for it."""
OTHER: dict[str, object] = {
    "at": 1,
    "id": FactId("placer-7-1"),
    "cluster": "h200",
    "run": "j.2",
    "job": "k",
    "number": 2,
    "budget": "b",
    "user": UserName("root"),
    "placement": (ReplicaPlace(replica=0, host=HostId("h9"), gpus=(0,)),),
    "launch": dataclasses.replace(LAUNCH, command=("rm", "-r", "/")),
    "min_runtime_ms": 1,
    "resumable": False,
    "grace_ms": 1,
    "resume_count": 3,
    "master_address": "h9",
    "master_port": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


def signed(folder: Path) -> tuple[RunAssigned, Trust]:
    secret, public = make_signing_keys(folder)
    sealed = load_signer(secret).seal(RUN)
    assert isinstance(sealed, RunAssigned)
    return sealed, load_trust(public)


def test_what_the_placer_signed_is_believed_also_after_its_way_through_the_log(folder: Path) -> None:
    run, trust = signed(folder)
    read = codec.decode(codec.encode(run))
    assert isinstance(read, RunAssigned)
    assert trust.trouble_with(read) == ""
    shuffled = dataclasses.replace(LAUNCH, environment={"A": "1", "B": "2"})
    assert trust.trouble_with(msgspec.structs.replace(run, launch=shuffled)) == "", "an environment has no order"


def test_every_field_that_decides_what_is_started_is_signed(folder: Path) -> None:
    run, trust = signed(folder)
    assert {*OTHER} | NOT_SIGNED == {*RunAssigned.__struct_fields__}, "say of a new field whether it is signed"
    for field, value in OTHER.items():
        changed = msgspec.structs.replace(run, **{field: value})
        assert "changed afterwards" in trust.trouble_with(changed), field


@pytest.mark.parametrize("field", ["command", "environment", "working_directory"])
def test_words_cannot_move_between_fields(folder: Path, field: str) -> None:
    run, trust = signed(folder)
    value = {"command": ("python train.py",), "environment": {"A": "1"}, "working_directory": "/"}[field]
    launch = dataclasses.replace(LAUNCH, **{field: value})  # type: ignore[arg-type]
    assert trust.trouble_with(msgspec.structs.replace(run, launch=launch))


@given(signature=st.text(max_size=100) | st.binary(min_size=64, max_size=64).map(lambda raw: raw.hex()))
def test_no_other_signature_is_believed(folder: Path, signature: str) -> None:
    run, trust = signed(folder)
    assert trust.trouble_with(msgspec.structs.replace(run, signature=signature))


def test_a_run_without_one_is_not_started(folder: Path) -> None:
    _, trust = signed(folder)
    assert trust.trouble_with(RUN) == "its assignment is not signed"


def test_several_keys_are_believed_while_one_follows_another(folder: Path, tmp_path: Path) -> None:
    old_run, old_trust = signed(folder)
    new_run, _ = signed(tmp_path)
    assert old_trust.trouble_with(new_run)
    both = tmp_path / "both.pub"
    both.write_bytes((folder / "runs.pub").read_bytes() + b"\n" + (tmp_path / "runs.pub").read_bytes())
    trust = load_trust(both)
    assert (trust.trouble_with(old_run), trust.trouble_with(new_run)) == ("", "")


def test_other_facts_are_written_as_they_are(folder: Path) -> None:
    secret, _ = make_signing_keys(folder)
    fact = runs(1)
    assert load_signer(secret).seal(fact) is fact


def test_keys_are_made_once_and_files_that_hold_none_are_named(folder: Path, tmp_path: Path) -> None:
    secret, public = make_signing_keys(folder)
    before = secret.read_bytes()
    assert make_signing_keys(folder) == (secret, public)
    assert secret.read_bytes() == before
    assert secret.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refusal, match="no public Ed25519 key"):
        load_trust(secret)
    wrong = tmp_path / "wrong.key"
    wrong.write_bytes(public.read_bytes())
    wrong.chmod(0o600)
    with pytest.raises(Refusal, match="no private Ed25519 key"):
        load_signer(wrong)
    wrong.chmod(0o644)
    with pytest.raises(Refusal, match="others may read"):
        load_signer(wrong)
