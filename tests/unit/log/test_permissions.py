"""The table of who may write what, and what is made from it."""

import stat
from pathlib import Path

import pytest

from tenure.domain.ids import HostId
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.log.permissions import GRANTS, make_keys, may_publish, render, seed_file, users

SHIPPED = Path(__file__).parents[3] / "deploy" / "nats" / "users.conf"
EXAMPLE_HOSTS = (HostId("host-a"), HostId("host-b.example.org"))


def test_every_kind_has_a_writer_and_each_guarded_lane_one_alone() -> None:
    writers = {kind: [name for name, grant in GRANTS.items() if kind in grant.writes] for kind in KINDS.values()}
    assert all(writers.values()), [kind.__name__ for kind, names in writers.items() if not names]
    for kind, names in writers.items():
        if kind.lane in (Lane.RUNS, Lane.HOSTS, Lane.RANK, Lane.REPORT):
            assert len(names) == 1, f"{kind.__name__} is written by {names}"


def test_nobody_but_the_operator_may_change_a_log() -> None:
    for grant in users(EXAMPLE_HOSTS).values():
        if grant is not None:
            subjects = may_publish(grant, cluster="c")
            assert not [
                subject for subject in subjects if ">" in subject or subject.startswith("$JS.API.STREAM.DELETE")
            ]


def test_the_shipped_users_are_those_of_the_table() -> None:
    names = users(EXAMPLE_HOSTS)
    variables = {name: "$TENURE_NATS_" + name.upper().translate({45: 95, 46: 95}) for name in names}
    shipped = SHIPPED.read_text()
    begin = shipped.index("authorization {")
    assert shipped[begin:] == render(variables, cluster="tenure", hosts=EXAMPLE_HOSTS)


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made = make_keys(folder, ["placer", "agent-h.1"])
    assert make_keys(folder, ["placer", "agent-h.1"]) == made
    assert len({*made.values()}) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())


def test_a_file_that_is_no_seed_is_named(tmp_path: Path) -> None:
    seed_file(tmp_path, "placer").write_text("what")
    with pytest.raises(Refusal, match=r"nats-placer\.seed: holds no seed"):
        make_keys(tmp_path, ["placer"])
