"""Constructed months: the same for a seed, demand where it was asked for, every kind in proportion."""

import gzip
from random import Random

import pytest

from simulator.traces.fluid import Fluid, Served, outstanding
from simulator.traces.generate import Month, generate
from simulator.traces.write import chunks
from simulator.workload import read_trace
from tenure.domain.refusal import Refusal
from tenure.domain.tree_check import check_tree
from tenure.runtime.cluster_file import parse_hosts

DAY_S = 86_400
TREE = check_tree(
    {
        "budgets": {
            "science": {"share": 60, "children": {"chem": {"share": 70}, "bio": {"share": 30}}},
            "robotics": {"share": 40},
            "guests": {"share": 0},
        }
    }
)


def month(*, hosts="64x8", days=8, seed=7, **rest):
    return Month(hosts=parse_hosts(hosts), tree=TREE, days=days, seed=seed, **rest)


@pytest.fixture(scope="module")
def rows():
    return generate(month())


def test_the_same_seed_gives_the_same_bytes(rows):
    assert b"".join(chunks(rows)) == b"".join(chunks(generate(month())))
    assert rows != generate(month(seed=8))


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [({}, 2.0, 3.0), ({"seed": 8}, 2.0, 3.0), ({"hosts": "4x8"}, 2.0, 3.0), ({"demand": 1.2}, 0.7, 1.7)],
    ids=["64 hosts", "another seed", "4 hosts", "less demand"],
)
def test_outstanding_demand_stays_where_it_was_asked_for(asked, low, high):
    chosen = month(**asked)
    levels = [level for at_s, level in outstanding(generate(chosen), gpus=chosen.gpus) if at_s >= DAY_S]
    assert len(levels) > 100
    assert low <= min(levels) <= max(levels) <= high


def test_every_kind_is_there_in_proportion(rows):
    gpu_s = {kind: sum(row.gpu_s for row in rows if row.kind == kind) for kind in {row.kind for row in rows}}
    parts = {kind: part / sum(gpu_s.values()) for kind, part in gpu_s.items()}
    expected = {
        "debug": (0.002, 0.03), "interactive": (0.005, 0.05), "sweep": (0.1, 0.25), "small": (0.1, 0.3),
        "medium": (0.15, 0.4), "large": (0.1, 0.4), "huge": (0.03, 0.3),
    }  # fmt: skip
    assert parts.keys() == expected.keys()
    assert not {kind: parts[kind] for kind, (low, high) in expected.items() if not low <= parts[kind] <= high}
    number = {kind: sum(row.kind == kind for row in rows) for kind in parts}
    assert number["debug"] > 5 * number["interactive"] > 100
    assert min(number["sweep"], number["small"]) > number["medium"] > number["large"] > number["huge"] > 0


def test_contracts_are_those_of_their_kind(rows):
    for row in rows:
        assert (row.min_runtime_s == 0) == (row.kind == "sweep")
        if row.kind == "interactive":
            assert row.min_runtime_s == 8 * 3600
            assert not row.resumable
        if row.kind == "debug":
            assert row.gpus <= 8
            assert row.min_runtime_s <= 900
    assert max(row.gpus for row in rows) == 256, "the largest gangs take half of the cluster"


def test_people_keep_office_hours_and_sweeps_come_in_bursts(rows):
    by_hand = [row.submit_s // DAY_S % 7 for row in rows if row.kind in ("debug", "interactive")]
    weekend = sum(day >= 5 for day in by_hand) / len(by_hand)
    assert weekend < 0.2, "two days of seven would be 0.29"
    sweeps = [row.submit_s for row in rows if row.kind == "sweep"]
    assert len(set(sweeps)) < len(sweeps) / 2


def test_budgets_get_jobs_by_share_and_one_without_a_share_none(rows):
    gpu_s = {budget: sum(row.gpu_s for row in rows if row.budget == budget) for budget in TREE.leaves}
    assert gpu_s["guests"] == 0
    for budget in ("science/chem", "science/bio", "robotics"):
        assert 0.4 < gpu_s[budget] / sum(gpu_s.values()) / TREE.fractions[budget] < 1.8


def test_teams_have_seasons():
    """What a team has submitted swings: a deadline week and a pause differ."""
    rows = generate(month(hosts="16x8", days=28))
    for budget in ("science/chem", "robotics"):
        weeks = [
            sum(row.gpu_s for row in rows if row.budget == budget and row.submit_s // (7 * DAY_S) == week)
            for week in range(1, 4)
        ]
        assert max(weeks) > 1.2 * min(weeks), f"{budget}: {weeks}"


def test_the_file_is_one_that_is_read(rows, tmp_path):
    path = tmp_path / "trace.csv.gz"
    written = list(chunks(rows))
    assert len(written) > 1, "rows come in many chunks"
    path.write_bytes(gzip.compress(b"".join(written)))
    read = read_trace(path, tree=TREE)
    assert [(job.job, job.submitted_at, job.runs_for_ms) for job in read.jobs] == [
        (row.job_id, row.submit_s * 1000, row.runtime_s * 1000) for row in rows
    ]


def test_the_smallest_cluster_and_users():
    tiny = month(hosts="1x1", days=3, users=1)
    rows = generate(tiny)
    assert {row.gpus for row in rows} == {1}
    assert len({row.user for row in rows}) <= 2 * 3
    assert max(level for _, level in outstanding(rows, gpus=1)) <= 3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"days": 0}, "--days: 0 is out of range; use 1 to 1000"),
        ({"demand": 99.0}, "--demand: 99 is out of range; use 0.5 to 20"),
        ({"largest": 1.5}, "--largest: 1.5 is out of range; use 0 to 1"),
        ({"unallocated": 1.0}, "--unallocated: 1 is out of range; use 0 to 0.9"),
        ({"users": 0}, "--users: 0 is out of range; use 1 to 100000"),
    ],
)
def test_months_that_cannot_be_made(asked, message):
    with pytest.raises(Refusal) as caught:
        generate(month(**asked))
    assert message in str(caught.value)


def test_the_fluid_service_serves_all_alike():
    """Four GPUs, eight asked for: half speed until the short one is done at 20, then 4/6 of it."""
    service = Fluid(gpus=4)
    service.submit(Served(gpus=2, owner=0), runtime_s=10)
    service.submit(Served(gpus=6, owner=1), runtime_s=30)
    assert service.advance(19.9) == []
    assert [job.owner for job in service.advance(20)] == [0]
    assert service.next_end_s() == pytest.approx(20 + 20 * 6 / 4)
    assert [job.owner for job in service.advance(100)] == [1]
    assert (service.asked, service.next_end_s()) == (0, None)


def test_unallocated_jobs_have_the_gaps_and_what_is_left():
    """Ten GPUs, a fifth for unallocated jobs: at 2/10 while others want all, at 4/10 when six are wanted."""
    service = Fluid(gpus=10, unallocated=0.2)
    service.submit(Served(gpus=10, owner=0, allocated=False), runtime_s=10)
    service.submit(Served(gpus=10, owner=1), runtime_s=8)
    service.submit(Served(gpus=6, owner=2), runtime_s=16)
    assert [job.owner for job in service.advance(16)] == [1], "both at half speed, 8 of 16 GPUs"
    assert (service.asked_by(allocated=True), service.asked_by(allocated=False)) == (6, 10)
    assert [job.owner for job in service.advance(24)] == [2], "alone, at full speed"
    assert service.next_end_s() == pytest.approx(24 + 10 - 16 * 0.2 - 8 * 0.4)


def test_the_fluid_service_equals_small_steps():
    """The heap of ends against the plain way: everybody's work shrinks by the rate, step by step."""
    random = Random(3)
    service, plain, step_s = Fluid(gpus=8), [], 0.01
    ends, plain_ends = {}, {}
    for second in range(100):
        if second < 40:
            gpus, runtime_s = random.randint(1, 8), random.randint(1, 9)
            service.submit(Served(gpus=gpus, owner=second), runtime_s=runtime_s)
            plain.append([second, gpus, float(runtime_s)])
        for _ in range(100):
            rate = min(1.0, 8 / max(sum(gpus for _, gpus, _ in plain), 1))
            plain = [[owner, gpus, left - rate * step_s] for owner, gpus, left in plain]
            plain_ends.update((owner, second) for owner, _, left in plain if left <= 0)
            plain = [job for job in plain if job[2] > 0]
        ends.update((job.owner, second) for job in service.advance(second + 1))
    assert len(ends) > 15
    assert ends.keys() == plain_ends.keys()
    assert max(abs(ends[owner] - plain_ends[owner]) for owner in ends) <= 1
