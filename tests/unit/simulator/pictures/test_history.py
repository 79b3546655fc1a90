"""Lines of a log as columns."""

from simulator.pictures.history import CAUSES, UNTOLD, read_history
from tests.unit.simulator.pictures.five_runs import END, HOURS, LEAVES, history, started


def test_everything_that_is_told_is_read() -> None:
    read = history()
    assert (read.end, read.hosts, read.gpus.tolist(), read.leaves) == (END, ("h000", "h001"), [4, 4], LEAVES)
    assert read.jobs.ids == ("j1", "j3", "j4", "j2")
    assert [read.leaves[leaf] for leaf in read.jobs.budget] == ["a", "a", "b/y", "b/x"]
    assert read.runs.number.tolist() == [1, 1, 1, 1, 2]
    assert [CAUSES[cause] for cause in read.runs.cause] == [
        "preempted",
        "host_lost",
        "host_lost",
        "completed",
        "running",
    ]
    assert read.runs.by == ("j2", "h001", "h001", "", "")
    assert read.runs.end.tolist() == [5_400_000, 7_200_000, 7_200_000, 9_000_000, END]


def test_neighbouring_gpus_of_a_host_are_one_span() -> None:
    lines = [started("j.1", 0, {"h2": [0, 1, 3], "h10": [5, 4]}, protected_until=0)]
    spans = read_history(lines, budgets={}).spans
    found = zip(spans.host.tolist(), spans.first.tolist(), spans.count.tolist(), strict=True)
    assert sorted(found) == [(0, 0, 2), (0, 3, 1), (1, 4, 2)]


def test_hosts_are_in_the_order_people_count() -> None:
    lines = [started("j.1", 0, {"h10": [0], "h9": [0], "a1": [0]}, protected_until=0)]
    assert read_history(lines, budgets={}).hosts == ("a1", "h9", "h10")


def test_a_log_that_begins_in_the_middle_is_read() -> None:
    lines = [started("j.3", 7, {"h0": [0]}, protected_until=HOURS), {"t": 90, "type": "run_ended", "run": "gone.1"}]
    read = read_history(lines, budgets={"a": 1.0})
    assert read.leaves == (UNTOLD, "a")
    assert (read.runs.number.tolist(), read.runs.end.tolist()) == ([3], [90_000])
    assert read.trees[0][1].tolist() == [0.0, 1.0]


def test_an_empty_log_is_read() -> None:
    read = read_history([], budgets={"a": 0.5})
    assert (read.end, read.installed, read.leaves, read.jobs.ids) == (0, 0, ("a",), ())


def test_shares_are_of_the_whole() -> None:
    assert history().trees[0][1].tolist() == [0.5, 0.25, 0.25]
