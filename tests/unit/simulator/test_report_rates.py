"""Owed and delivered in the unit of account, worked out by hand: 8 H100 on h0, 8 B200 on h1, a B200 hour costs 2.5."""

import pytest

from simulator.report.owed import pools_by_hour
from tenure.domain.ids import UserName
from tenure.domain.policy import Policy
from tenure.events.policy import PolicyChanged
from tests.unit.simulator.tale import Tale, ms
from tests.unit.simulator.test_report import budget

RATES = {"B200": 2_500}


def two_clusters() -> Tale:
    tale = Tale()
    tale.host("h1", gpu_type="B200")
    return tale


def test_a_budget_on_b200_is_charged_and_owed_what_they_cost() -> None:
    """For two hours a holds 8 B200, b 8 H100. 8 + 20 are offered, half of it is 14 an hour."""
    tale = two_clusters()
    tale.job("ja", 0, contract=2, gpu_type="B200")
    tale.start("ja.1", 0, host="h1")
    tale.job("jb", 0, budget="b", contract=2)
    tale.start("jb.1", 0)
    report = tale.report(end=2, rates_milli=RATES)
    a, b = budget(report, "a"), budget(report, "b")
    assert (a.delivered_gpu_hours, a.owed_gpu_hours) == (40, 28), "its share is less than what it holds"
    assert (b.delivered_gpu_hours, b.owed_gpu_hours) == (16, 16), "it wants no more than it holds"
    # hours of GPUs, whatever they cost
    assert (report.availability, report.gpu_hours.capacity, report.gpu_hours.charged) == (1, 32, 32)


def test_a_job_of_any_type_wants_the_cheapest_that_it_could_run_on() -> None:
    """It waits for an hour and runs for one, on B200: it gets 20, and was owed 8 an hour."""
    tale = two_clusters()
    tale.job("j", 0)
    tale.start("j.1", 1, host="h1")
    tale.end("j.1", 2)
    leaf = budget(tale.report(end=2, rates_milli=RATES), "a")
    assert (leaf.delivered_gpu_hours, leaf.owed_gpu_hours) == (20, 8 + 8)


def test_a_changed_rate_counts_from_the_next_full_hour() -> None:
    """2.5 until two o'clock, although it was changed at 1:15; then 1."""
    tale = two_clusters()
    for at, rates in ((0, RATES), (1.25, {})):
        tale.say(PolicyChanged(at=ms(at), policy=Policy(rates_milli=rates), by=UserName("ana")))
    tale.job("j", 0, contract=3, gpu_type="B200")
    tale.start("j.1", 0, host="h1")
    leaf = budget(tale.report(end=3), "a")
    assert (leaf.delivered_gpu_hours, leaf.owed_gpu_hours) == (20 + 20 + 8, 14 + 14 + 8)


def retyped() -> Tale:
    """h0 has 8 H100, from 2:30 on 8 B200 under the same name, and is lost at four."""
    tale = Tale()
    tale.say(PolicyChanged(at=0, policy=Policy(rates_milli=RATES), by=UserName("ana")))
    tale.job("ja", 0, contract=2)
    tale.start("ja.1", 0)
    tale.end("ja.1", 2)
    tale.job("jb", 2, budget="b", gpu_type="B200")
    tale.job("jc", 2, contract=2)
    tale.start("jc.1", 2)
    tale.end("jc.1", 2.5, "host_lost")
    tale.host("h0", at=2.5, gpu_type="B200")
    tale.start("jc.2", 2.5)
    tale.offer("h0", 0, 4, gpu_type="B200")
    tale.end("jc.2", 4, "host_lost", refunded_from=3.5)
    return tale


def test_a_host_that_changes_its_type_has_each_at_its_time() -> None:
    """Offered an hour: 8, 8, 4 + 10, 20, nothing. What ran on H100 is not charged anew when the host has B200."""
    a, b = (budget(retyped().report(end=5), name) for name in "ab")
    assert a.delivered_gpu_hours == 16 + 4 + 10 + 10
    assert a.owed_gpu_hours == 4 + 4 + 7 + 10, "jc wants H100 while there are some, then B200"
    assert (b.delivered_gpu_hours, b.owed_gpu_hours) == (0, 7 + 10)


def decommissioned() -> Tale:
    """8 V100 at 0.5 go for ever at half past one; 8 H100 stay."""
    tale = Tale(a=90, b=10)
    tale.say(PolicyChanged(at=0, policy=Policy(rates_milli={"V100": 500}), by=UserName("ana")))
    tale.host("h1", gpu_type="V100")
    tale.job("j", 0)
    tale.offer("h1", 0, 1.5, gpu_type="V100")
    return tale


DECOMMISSIONED_OWED = ((0, 3, 4 + 4 + 7.2), (1.75, 3, 1 + 7.2), (2.25, 2.5, 1.8))
"""Since, until, owed. The job wants 4 an hour while there were V100 in it, then 8, and its share is 7.2."""


def test_types_that_are_gone_make_no_demand_cheaper() -> None:
    for since, until, owed in DECOMMISSIONED_OWED:
        leaf = budget(decommissioned().report(start=since, end=until), "a")
        assert leaf.owed_gpu_hours == pytest.approx(owed), since


@pytest.mark.parametrize("gone_at", [1, 1.25])
def test_a_type_counts_in_each_hour_in_which_there_was_any(gone_at: float) -> None:
    steps = [(0, ("sim", "V100"), 8), (ms(gone_at), ("sim", "V100"), -8), (ms(4), ("sim", "V100"), 8)]
    there = dict(pools_by_hour(steps))
    hours = [max(at for at in there if at <= ms(hour)) for hour in range(6)]
    assert [bool(there[at]) for at in hours] == [True, gone_at > 1, False, False, True, True]


def test_rates_of_one_change_nothing() -> None:
    tale = two_clusters()
    tale.job("j", 0)
    tale.start("j.1", 0.3, host="h1")
    assert tale.report(end=2) == tale.report(end=2, rates_milli={"B200": 1_000})


def test_without_rates_a_cpu_costs_a_fiftieth_of_a_gpu() -> None:
    """For two hours a holds 8 CPUs beside 8 H100: 8 + 8 x 0.02 are offered an hour, and 0.16 are wanted and held."""
    tale = Tale()
    tale.host("h1", gpu_type="CPU")
    tale.job("j", 0, contract=2, gpu_type="CPU")
    tale.start("j.1", 0, host="h1")
    leaf = budget(tale.report(end=2), "a")
    assert (leaf.delivered_gpu_hours, leaf.owed_gpu_hours) == (0.32, 0.32)
