"""Owed and delivered in the unit of account, worked out by hand: 8 H100 on h0, 8 B200 on h1, a B200 hour costs 2.5."""

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
