"""When a draining host will be empty and what it waits for, as `tenure host list` shows it (P9)."""

from typing import Any

import pytest

from services.gateway.order import Order
from services.gateway.policy.emptying import emptied_at
from services.gateway.policy.host_orders import drain, resume
from services.gateway.refusals import WrongState
from services.gateway.state import State
from tenure.domain.ids import FactId, HostId, UserName
from tenure.domain.refusal import Refusal
from tenure.domain.units import HOUR, MINUTE
from tests.scenario.script import script_to_world
from tests.unit.gateway.test_worlds import fold

KEPT = {"at": "0s", "submit": "kept", "budget": "a", "gpus": 4, "min_runtime": "6h", "runs_for": "9h"}
FREE = {"at": "1s", "submit": "free", "budget": "a", "gpus": 4, "min_runtime": "0", "runs_for": "9h"}


def state_after(*when: dict[str, Any], until: str = "20m", plug: bool = False) -> State:
    given = {"hosts": "1x8", "budgets": {"a": {"share": 100}}, "plug": plug}
    return fold(script_to_world({"given": given, "when": when, "until": until}).recorded)


def emptied(state: State, *, now: int) -> tuple[int, str] | None:
    return emptied_at(state, state.hosts[HostId("h000")], now=now)


def order(now: int) -> Order:
    return Order(now=now, fact_id=FactId("f"), cluster="sim", by=UserName("olga"), comment="fan")


def test_a_drain_waits_for_the_longest_contract() -> None:
    state = state_after(KEPT, {"at": "10m", "drain": "h000"})
    assert emptied(state, now=20 * MINUTE) == (6 * HOUR, "kept.1")


def test_a_fatal_drain_waits_for_nothing() -> None:
    state = state_after(KEPT | {"stops_after": "30m", "grace": "10m"}, {"at": "15m", "drain": "h000", "fatal": True})
    assert emptied(state, now=20 * MINUTE) == (20 * MINUTE, "kept.1")


def test_before_a_window_nothing_ends_earlier_than_it_must() -> None:
    state = state_after(FREE, {"at": "10m", "drain": "h000", "empty_at": "4h"})
    assert emptied(state, now=20 * MINUTE) == (4 * HOUR, "free.1")


def test_a_contract_made_before_outlasts_the_window_and_is_named() -> None:
    state = state_after(KEPT, FREE, {"at": "10m", "drain": "h000", "empty_at": "4h"})
    assert emptied(state, now=20 * MINUTE) == (6 * HOUR, "kept.1")


def test_an_empty_host_is_empty_when_its_window_begins() -> None:
    state = state_after({"at": "10m", "drain": "h000", "empty_at": "4h"})
    assert emptied(state, now=20 * MINUTE) == (4 * HOUR, "")
    assert emptied(state_after({"at": "10m", "drain": "h000"}), now=20 * MINUTE) is None


def test_a_window_needs_a_time_and_is_not_fatal() -> None:
    state = state_after(KEPT)
    host = "h000"
    with pytest.raises(Refusal, match="no deadline"):
        drain(state, host, order(HOUR), fatal=False, deadline=None, accepts=True)
    with pytest.raises(Refusal, match="waits for nothing"):
        drain(state, host, order(HOUR), fatal=True, deadline=2 * HOUR, accepts=True)
    assert drain(state, host, order(HOUR), fatal=False, deadline=2 * HOUR, accepts=True).accepts


def test_a_person_can_take_back_what_automation_drained_and_not_drain_it_again() -> None:
    state = state_after({"at": "10m", "signal": "h000", "code": "xid_79"}, plug=True)
    assert state.hosts[HostId("h000")].state == "repairing"
    with pytest.raises(WrongState, match="repairing already"):
        drain(state, "h000", order(HOUR), fatal=False, deadline=None)
    assert resume(state, "h000", order(HOUR)).by == "olga"
