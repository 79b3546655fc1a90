"""Exchange rates by hand (P1-P3): what a B200 hour costs a budget, and since when. Accounts are in H100-hours."""

from dataclasses import replace

from services.ranker.decider import role
from tenure.domain.policy import Policy
from tenure.domain.units import HOUR, MINUTE
from tests.unit.ranker.scene import Scene

POLICY = Policy(lookback_ms=6 * HOUR, rates_milli={"B200": 2_500})


def two_clusters(policy: Policy = POLICY) -> Scene:
    """100 H100 on h0 and 40 B200 on b0: 100 + 40 x 2.5 = 200 of account."""
    scene = Scene({"a": 50, "b": 50}, gpus=100, policy=policy)
    scene.capacity(40, host="b0", gpu_type="B200")
    return scene


def at_rates(scene: Scene, **rates_milli: int) -> None:
    scene.change_policy(replace(POLICY, rates_milli=rates_milli))


def test_capacity_is_weighed() -> None:
    """Half of 200 for four hours."""
    assert two_clusters().standing("a", 4 * HOUR).entitlement_gpu_ms == 100 * 4 * HOUR


def test_a_budget_is_charged_what_its_gpus_cost() -> None:
    """Ten GPUs for two hours each: 20 H100-hours on the one, 50 on the other. Both are protected for one hour more."""
    scene = two_clusters()
    for name, budget, host in (("ja", "a", "h0"), ("jb", "b", "b0")):
        scene.job(name, budget, gpus=10, min_runtime_ms=3 * HOUR)
        scene.run(name, hosts=[host])
    a, b = scene.standing("a", 2 * HOUR), scene.standing("b", 2 * HOUR)
    assert (a.charged_gpu_ms, a.commitment_gpu_ms) == (20 * HOUR, 10 * HOUR)
    assert (b.charged_gpu_ms, b.commitment_gpu_ms) == (50 * HOUR, 25 * HOUR)
    assert (a.ratio, b.ratio) == (0.15, 0.375)


def test_who_runs_on_dear_gpus_comes_after_who_runs_on_as_many_cheap_ones() -> None:
    scene = two_clusters()
    for name, budget, host in (("ja", "a", "b0"), ("jb", "b", "h0")):
        scene.job(name, budget, gpus=10)
        scene.run(name, hosts=[host])
    scene.now = HOUR
    scene.job("next-a", "a")
    scene.job("next-b", "b")
    assert scene.order() == ["next-b", "next-a"]


def test_a_refund_gives_back_what_was_charged() -> None:
    """The second of two hours on ten B200."""
    scene = two_clusters()
    scene.job("j", "a", gpus=10)
    run = scene.run("j", hosts=["b0"])
    scene.now = 2 * HOUR
    scene.exit(run)
    scene.end(run)
    scene.charge(run, charged=10 * HOUR, refunded=10 * HOUR, since=HOUR, until=2 * HOUR)
    assert scene.standing("a").charged_gpu_ms == 25 * HOUR


def test_a_changed_rate_counts_from_the_next_full_hour_and_never_backwards() -> None:
    """At 1:30 the rate goes from 2.5 to 4: it counts from 2:00 on. Ten B200 cost 2 x 25, then 2 x 40 by 4:00."""
    scene = two_clusters()
    at_rates(scene, B200=2_500)
    scene.job("j", "a", gpus=10, min_runtime_ms=6 * HOUR)
    scene.run("j", hosts=["b0"])
    scene.now = 90 * MINUTE
    at_rates(scene, B200=4_000)
    before, after = scene.standing("a", 2 * HOUR), scene.standing("a", 4 * HOUR)
    assert (before.charged_gpu_ms, after.charged_gpu_ms) == (50 * HOUR, 130 * HOUR)
    # half of 100 + 40 x 2.5 until then, half of 100 + 40 x 4 afterwards
    assert (before.entitlement_gpu_ms, after.entitlement_gpu_ms) == (200 * HOUR, 460 * HOUR)
    assert after.commitment_gpu_ms == 2 * 40 * HOUR, "what is ahead is counted at the rate that was said last"
    later = scene.standing("a", 7 * HOUR + 30 * MINUTE)  # the window begins at 1:30
    assert later.charged_gpu_ms == int(0.5 * 25 * HOUR + 5.5 * 40 * HOUR)
    assert later.entitlement_gpu_ms == int(0.5 * 100 * HOUR + 5.5 * 130 * HOUR)


def test_the_first_policy_of_a_log_says_what_counted_before_it() -> None:
    scene = two_clusters(Policy(lookback_ms=6 * HOUR))
    scene.job("j", "a", gpus=10)
    scene.run("j", hosts=["b0"])
    scene.now = 90 * MINUTE
    at_rates(scene, B200=2_500)
    assert scene.standing("a").charged_gpu_ms == int(1.5 * 25 * HOUR)


def test_what_is_reported_late_has_the_rate_of_its_time() -> None:
    """The run started at 0, which is heard of at 3:00, when the rate has been 4 for an hour."""
    scene = two_clusters()
    at_rates(scene, B200=2_500)
    scene.job("j", "a", gpus=10)
    run = scene.assign("j", hosts=["b0"])
    scene.now = 90 * MINUTE
    at_rates(scene, B200=4_000)
    scene.standing("a", 3 * HOUR)
    scene.now = 0
    scene.start(run)
    assert scene.standing("a", 3 * HOUR).charged_gpu_ms == 2 * 25 * HOUR + 40 * HOUR


def test_a_reservation_counts_at_the_rate_of_its_hosts_and_a_snapshot_keeps_it() -> None:
    scene = two_clusters()
    at_rates(scene, B200=2_500)
    scene.job("gang", "a", gpus=10)
    scene.reserve("gang", hosts=["b0"])
    scene.now = 90 * MINUTE
    at_rates(scene, B200=4_000)
    assert scene.standing("a").commitment_gpu_ms == 40 * HOUR
    ranker, state = role(POLICY), scene.actor.state
    again = ranker.load(ranker.dump(state))
    assert ranker.dump(again) == ranker.dump(state)
    scene.actor.state = again
    scene.drop("gang")
    assert scene.standing("a", 3 * HOUR).commitment_gpu_ms == 0
    assert scene.standing("a").entitlement_gpu_ms == 200 * HOUR + 130 * HOUR


def added(scene: Scene, name: str) -> float:
    """What picking a queued job adds to its budget, in GPU-hours of account."""
    scene.actor.fold()
    groups = [group for users in scene.actor.state.queue.allocated.values() for group in users.values()]
    (entry,) = [entry for group in groups for entry in group.entries if entry.job == name]
    return entry.commitment / HOUR


def test_a_job_of_any_type_counts_at_the_dearest_that_there_is_and_a_snapshot_changes_nothing() -> None:
    """A type that no host has any more does not count, nor does the one that a host has before it is known."""
    scene = Scene({"a": 50, "b": 50}, gpus=100, policy=replace(POLICY, rates_milli={"H100": 400, "A100": 200}))
    scene.job("j", "a", gpus=10)
    assert added(scene, "j") == 4
    ranker = role(scene.policy)
    scene.actor.state = ranker.load(ranker.dump(scene.actor.state))
    assert added(scene, "j") == 4
    scene.capacity(10, gpu_type="A100")
    assert added(scene, "j") == 2
    scene.actor.state = ranker.load(ranker.dump(scene.actor.state))
    assert added(scene, "j") == 2


def test_only_the_cluster_that_a_job_names_counts() -> None:
    scene = two_clusters()
    for host, place in (("h0", "east"), ("b0", "west")):
        scene.register(host, cluster=place)
    wanted: tuple[tuple[str, str | None, int], ...] = (("e", "east", 10), ("w", "west", 25), ("any", None, 25))
    for name, cluster, expected in wanted:
        scene.job(name, "a", gpus=10, cluster=cluster)
        assert added(scene, name) == expected
    scene.register("b0", cluster="east")
    assert added(scene, "e") == 25


def test_slots_cost_a_part_of_a_gpu() -> None:
    """64 cpus at 0.05: 3.2 of account, beside 100 H100. Sixteen cpus for an hour cost 0.8."""
    scene = Scene({"a": 50, "b": 50}, gpus=100, policy=replace(POLICY, rates_milli={"CPU": 50}))
    scene.capacity(64, host="dev", gpu_type="CPU")
    scene.job("session", "a", gpus=16, gpu_type="CPU")
    scene.run("session", hosts=["dev"])
    found = scene.standing("a", HOUR)
    assert (found.charged_gpu_ms, found.entitlement_gpu_ms) == (HOUR * 8 // 10, HOUR * 516 // 10)


def test_without_rates_a_cpu_costs_a_fiftieth_of_a_gpu() -> None:
    """16 H100 and 64 cpus: 16 + 64 x 0.02 = 17.28 of account, whatever other types cost."""
    for rates in ({}, {"B200": 3_000}):
        scene = Scene({"a": 50, "b": 50}, gpus=16, policy=replace(POLICY, rates_milli=rates))
        scene.capacity(64, host="dev", gpu_type="CPU")
        scene.job("session", "a", gpus=50, gpu_type="CPU", min_runtime_ms=2 * HOUR)
        assert added(scene, "session") == 2
        scene.run("session", hosts=["dev"])
        found = scene.standing("a", HOUR)
        assert (found.charged_gpu_ms, found.commitment_gpu_ms) == (HOUR, HOUR)
        assert found.entitlement_gpu_ms == HOUR * 864 // 100
