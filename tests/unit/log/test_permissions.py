"""The table of who may write what, and what is made from it."""

import stat
from pathlib import Path

import pytest

from tenure.domain.ids import HostId
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.log.permissions import GRANTS, main, make_keys, may_publish, render, seed_file, users

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


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The command, run with these arguments."""
    monkeypatch.setattr("sys.argv", ["permissions", *arguments])
    return main()


def test_a_site_s_server_has_a_user_that_may_what_its_agents_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("--cluster", "lab", "--keys", str(tmp_path / "keys"))
    assert asked(monkeypatch, *keys, "--hosts", "h0,f0", "--site", "paris=f0") == 0
    block = capsys.readouterr().out.partition("# leaf-paris")[2]
    assert '"tenure.lab.report.f0.Heartbeat"' in block and '"_INBOX_agent-f0.>"' in block
    assert "report.h0" not in block and "JobSubmitted" not in block
    assert "$JS.tenure.API.STREAM.INFO.tenure-lab" in block and '"$JS.API.' not in block
    assert seed_file(tmp_path / "keys", "leaf-paris").exists()
    assert asked(monkeypatch, *keys, "--site", "paris=f0", "--for-site", "paris") == 0
    theirs = capsys.readouterr().out
    assert "# agent-f0" in theirs and "leaf-paris" not in theirs and "operator" not in theirs
    assert "_INBOX_gateway" not in theirs, "an agent answers where it was asked, and nowhere else"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--site", "paris"), "'paris' names no hosts; write --site NAME=HOST,HOST"),
        (("--site", "paris=f0"), "f0 of paris is not among the hosts; add it to --hosts"),
        (("--site", "paris=f0", "--for-site", "rome"), "'rome' is no --site; name one of them"),
    ],
)
def test_a_site_that_makes_no_sense_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    assert asked(monkeypatch, "--cluster", "lab", "--keys", str(tmp_path / "keys"), *arguments) == 1
    assert says in capsys.readouterr().err
