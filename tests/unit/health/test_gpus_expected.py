"""S62: a host that comes back with fewer GPUs lacks them, whatever it registers, until a person says that it may."""

from tenure.domain.host import HostState
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE
from tests.unit.health.test_drain import drain, resume
from tests.unit.health.ward import Ward

HEALTHY, SUSPECT, DRAINING, DRAINED = HostState.HEALTHY, HostState.SUSPECT, HostState.DRAINING, HostState.DRAINED


def test_a_restart_does_not_excuse_a_lost_gpu() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpus=7)
    ward.live(2 * MINUTE, "h0", gpus=7)
    assert ward.states("h0") == [HEALTHY, SUSPECT, DRAINING, DRAINED]
    last = ward.changes("h0")[2].why
    assert last.reason is Reason.HOST_GPUS_MISSING
    assert (last.numbers["gpus"], last.numbers["gpus_registered"]) == (7, 8)


def test_the_gpu_that_is_back_after_the_next_restart_ends_the_doubt() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpus=7)
    ward.beat("h0", gpus=7)
    ward.decide()
    assert ward.state("h0") is SUSPECT
    ward.register("h0")
    ward.live(2 * MINUTE, "h0")
    assert ward.states("h0") == [HEALTHY, SUSPECT, HEALTHY]
    assert ward.capacity("h0") == 8


def test_a_person_may_take_it_as_it_is() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpus=7)
    ward.live(2 * MINUTE, "h0", gpus=7)
    assert ward.state("h0") is DRAINED
    resume(ward)
    ward.live(5 * MINUTE, "h0", gpus=7)
    assert (ward.state("h0"), ward.capacity("h0")) == (HEALTHY, 7)
    ward.beat("h0", gpus=6)
    ward.decide()
    assert ward.state("h0") is SUSPECT, "one more is missing"


def test_a_gpu_taken_out_while_a_person_has_the_host_is_no_loss() -> None:
    ward = Ward(hosts=1)
    drain(ward)
    ward.live(MINUTE, "h0")
    ward.register("h0", gpus=4)
    ward.live(MINUTE, "h0", gpus=4)
    resume(ward)
    ward.live(5 * MINUTE, "h0", gpus=4)
    assert (ward.state("h0"), ward.capacity("h0")) == (HEALTHY, 4)


def test_another_machine_of_the_same_name_has_its_own_number() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpu_type="A100", gpus=4)
    ward.live(2 * MINUTE, "h0", gpus=4)
    assert (ward.states("h0"), ward.capacity("h0")) == ([HEALTHY], 4)


def test_a_host_registered_with_more_lacks_them_though_its_beats_say_what_they_said() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpus=16)
    ward.live(2 * MINUTE, "h0", gpus=8)
    assert ward.states("h0") == [HEALTHY, SUSPECT, DRAINING, DRAINED]
