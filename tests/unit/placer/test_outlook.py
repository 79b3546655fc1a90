"""The ratios to come: what runs will have had is weighed by what their GPUs cost."""

from services.placer.policy.outlook import Outlook
from services.placer.standings import Standings
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.units import HOUR
from tenure.events.reports import HostRegistered
from tests.unit.placer.scene import Scene, spec


def ratio_in_three_hours(policy: Policy, *, gpu_type: str) -> float:
    """Of a budget that holds eight of a type, protected for one hour more."""
    scene = Scene(policy=policy)
    scene.say(HostRegistered(at=0, agent="d", hosts=(spec("dev", gpu_type="CPU", cluster="dev"),)))
    scene.host("dev", HostState.HEALTHY)
    scene.running("j", gpu_type=gpu_type)
    state = scene.actor.state
    standings = Standings(state.core.standings)
    return Outlook(state, scene.now, standings=standings, policy=policy).ratio(BudgetPath("a"), scene.now + 3 * HOUR)


def test_without_rates_cpus_count_a_fiftieth_of_gpus() -> None:
    usual, half = ratio_in_three_hours(Policy(), gpu_type="CPU"), Policy(rates_milli={"CPU": 500})
    assert usual == ratio_in_three_hours(Policy(rates_milli={"CPU": 20, "B200": 3_000}), gpu_type="CPU")
    assert usual < ratio_in_three_hours(half, gpu_type="CPU") < ratio_in_three_hours(Policy(), gpu_type="H100")
