"""Scenarios as YAML: given hosts, budgets and knobs; when these things happen; then these facts are in the log.

    why: one sentence for people
    rules: [P5]
    given: {hosts: 2x8, budgets: {a: {share: 50}, b: {share: 50}}, policy: {lookback: 1h}}
    when:
      - {at: 0s, submit: v, budget: b, gpus: 8, min_runtime: 1h, runs_for: 3h, resumable: true}
      - {at: 30m, drain: h000}
    until: 4h
    then:
      - {fact: RunPreemptionRequested, run: v.1, at: 1h, why: {reason: disrupt_lower_ratio, numbers: {level: a}}}
    never:
      - {fact: RunEnded, cause_of_end: preempted}

`given: {roles: priority}` takes the deciders of the baseline instead of the services' own; `given: {hosts: ...}` is a
size, or what `clusters:` of a cluster file is. `{at: 1m, every: 2m, times: 30, submit: n, ...}` submits n001, n002 ...
`cases:` are the numbers of the field cases that a scenario settles: docs/checklists/field-cases.md.
`plug: true` has a repair plug that repairs and tests, and `{answer: h000, ok: true}` is its word.

Instants are lengths of time since the world began. A `then` entry matches a fact that has at least these values;
`between: [1h, 61m]` bounds its instant; `count: 2` asks for exactly so many. `present: [key]` in a mapping asks that
keys are there, whatever their values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from services.health.policy.mending import Plug
from simulator.agents import Behaviour
from simulator.baseline import PRIORITY
from simulator.world import FAIR, World, fair
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch, Topology
from tenure.domain.severity import Severity
from tenure.domain.tree_check import check_tree
from tenure.domain.units import Millis, format_duration, parse_duration
from tenure.events.fact import Fact
from tenure.events.reports import HealthSignal
from tenure.runtime.cluster_file import check_cluster, parse_hosts
from tenure.runtime.options import build_policy
from tenure.runtime.yaml_file import load_yaml

_TOP = {"why", "rules", "cases", "given", "when", "until", "then", "never"}
_SPEC = {
    *("budget", "user", "gpus", "replicas", "min_runtime", "resumable", "priority", "grace"),
    *("gpu_type", "cluster", "topology", "hosts", "hosts_excluded"),
}
_BEHAVIOUR = {
    "runs_for",
    "exit_code",
    "starts_after",
    "stops_after",
    "stop_exit_code",
    "saves_on_stop",
    "breaks_replica",
}
_ROLES = {"fair": FAIR, "priority": PRIORITY}
_OPTIONS = {
    "drain": {"fatal", "empty_at"},
    "answer": {"ok"},
    "signal": {"source", "device", "code", "severity", "over", "since"},
    "lacks": {"gpus"},
}
_ACTIONS = (
    *("submit", "cancel", "drain", "resume", "repaired", "answer", "signal", "lacks", "breaks", "mends", "double"),
    *("silence", "speak", "tree", "policy", "restart"),
)


def load(path: Path) -> dict[str, Any]:
    """The scenario in `path`. Raises on an unknown key, so that a misspelt expectation cannot pass."""
    script = load_yaml(path)
    assert isinstance(script, dict), f"{path.name}: not a mapping"
    assert not set(script) - _TOP, f"{path.name}: unknown keys {set(script) - _TOP}"
    assert script.get("why") and script.get("then"), f"{path.name}: say why, and what must be true then"
    return script


def build(script: Mapping[str, Any]) -> World:
    """The world a script begins with."""
    given = script["given"]
    roles = _ROLES[given.get("roles", "fair")]
    return World(
        hosts=_hosts(given["hosts"]),
        tree=check_tree({"budgets": given["budgets"]}),
        policy=build_policy(given.get("policy", {})),
        roles=partial(fair, plug=Plug(repairs=True, tests=True)) if given.get("plug") else roles,
    )


def _hosts(given: str | list[dict[str, Any]]) -> tuple[HostSpec, ...]:
    return parse_hosts(given) if isinstance(given, str) else check_cluster({"clusters": given})


def script_to_world(script: Mapping[str, Any], world: World | None = None) -> World:
    """A world (a new one, or one given) in which the script has happened to its end."""
    world = world or build(script)
    plan(script, world)
    world.run(instant(script["until"]))
    return world


def plan(script: Mapping[str, Any], world: World) -> None:
    """Have everything that the script tells happen in the world when its time comes."""
    for entry in _one_by_one(script["when"]):
        world.at(instant(entry["at"]), partial(_act, world, entry))


def _one_by_one(entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries, with what comes `every` so often told once for each time."""
    for entry in entries:
        once = {key: value for key, value in entry.items() if key not in ("every", "times")}
        if "every" not in entry:
            yield once
            continue
        for number in range(entry["times"]):
            at = instant(entry["at"]) + number * instant(entry["every"])
            yield once | {"at": format_duration(at), "submit": f"{entry['submit']}{number + 1:03}"}


def check(script: Mapping[str, Any], facts: list[Fact]) -> None:
    """Assert what the scenario says of these facts."""
    shown = [msgspec.to_builtins(fact) for fact in facts]
    for wanted in script["then"]:
        found = sum(_matches(wanted, fact) for fact in shown)
        count = wanted.get("count")
        assert found == count if count is not None else found, f"{found} facts match {wanted}\n{story(shown, wanted)}"
    for unwanted in script.get("never", ()):
        broken = [fact for fact in shown if _matches(unwanted, fact)]
        assert not broken, f"{unwanted} must never be, but is:\n{story(broken, unwanted)}"


def story(shown: list[dict[str, Any]], wanted: Mapping[str, Any]) -> str:
    """Facts of the wanted kind, a line each."""
    kind = wanted["fact"]
    lines = [f"  {format_duration(fact['at'])} {fact}" for fact in shown if fact["type"] == kind]
    return "\n".join(lines[:40]) or f"  there is no {kind}"


def _matches(wanted: Mapping[str, Any], fact: Mapping[str, Any]) -> bool:
    if wanted["fact"] != fact["type"]:
        return False
    if "between" in wanted and not instant(wanted["between"][0]) <= fact["at"] <= instant(wanted["between"][1]):
        return False
    rest = {key: value for key, value in wanted.items() if key not in ("fact", "between", "count")}
    return _holds(rest, fact)


def _holds(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict):
        present = wanted.get("present", ())
        return (
            isinstance(found, Mapping)
            and all(key in found for key in present)
            and all(_holds(value, found.get(key)) for key, value in wanted.items() if key != "present")
        )
    if isinstance(wanted, list):
        return list(found or ()) == wanted
    if isinstance(wanted, str) and isinstance(found, int) and not isinstance(found, bool):
        return instant(wanted) == found
    return bool(wanted == found)


def _act(world: World, entry: Mapping[str, Any]) -> None:
    action = next(name for name in _ACTIONS if name in entry)
    unknown = set(entry) - {"at", action, *(_SPEC | _BEHAVIOUR if action == "submit" else _OPTIONS.get(action, set()))}
    assert not unknown, f"unknown keys {unknown} in {entry}"
    subject = entry[action]
    match action:
        case "submit":
            for name in subject if isinstance(subject, list) else [subject]:
                world.submit(JobId(name), _spec(entry), _behaviour(entry))
        case "cancel":
            world.cancel(JobId(subject))
        case "drain":
            empty_at = instant(entry["empty_at"]) if "empty_at" in entry else None
            world.drain(HostId(subject), fatal=bool(entry.get("fatal", False)), empty_at=empty_at)
        case "resume":
            world.resume(HostId(subject))
        case "repaired":
            world.repair(HostId(subject))
        case "answer":
            world.answer(HostId(subject), ok=entry["ok"])
        case "signal":
            world.signal(HostId(subject), _signal(entry, world.now))
        case "lacks":
            world.agents.gpus[HostId(subject)] = entry["gpus"]
        case "breaks":
            world.agents.broken[HostId(subject)] = None
        case "double":
            world.speak_for(HostId(subject), machine="another")
        case "mends":
            del world.agents.broken[HostId(subject)]
        case "silence":
            for name in subject if isinstance(subject, list) else [subject]:
                world.agents.silent[HostId(name)] = None
        case "speak":
            for name in subject if isinstance(subject, list) else [subject]:
                world.agents.speak_again(HostId(name))
        case "tree":
            world.change_tree(check_tree({"budgets": subject}))
        case "policy":
            world.change_policy(build_policy(subject, over=world.policy))
        case "restart":
            world.actor(subject).restart(with_snapshot=False)


def _signal(entry: Mapping[str, Any], now: Millis) -> HealthSignal:
    return HealthSignal(
        source=entry.get("source", "kernel"),
        device=entry.get("device", "gpu0"),
        code=entry.get("code", "xid_79"),
        severity=Severity(entry.get("severity", "fatal")),
        text="",
        first_at=instant(entry["since"]) if "since" in entry else now,
        last_at=now,
        over=entry.get("over", False),
    )


def _spec(entry: Mapping[str, Any]) -> JobSpec:
    more: dict[str, Any] = {}
    if "grace" in entry:
        more["grace_ms"] = instant(entry["grace"])
    return JobSpec(
        budget=BudgetPath(entry["budget"]),
        user=UserName(entry.get("user", "ana")),
        replicas=entry.get("replicas", 1),
        gpus_per_replica=entry["gpus"],
        min_runtime_ms=instant(entry.get("min_runtime", "0")),
        resumable=entry.get("resumable", False),
        priority=entry.get("priority", 0),
        gpu_type=entry.get("gpu_type"),
        cluster=entry.get("cluster"),
        topology=Topology(entry.get("topology", "any")),
        hosts=tuple(HostId(name) for name in entry.get("hosts", ())),
        hosts_excluded=tuple(HostId(name) for name in entry.get("hosts_excluded", ())),
        launch=Launch(command=("true",)),
        **more,
    )


def _behaviour(entry: Mapping[str, Any]) -> Behaviour:
    return Behaviour(
        runs_for_ms=instant(entry["runs_for"]),
        exit_code=entry.get("exit_code", 0),
        starts_after_ms=instant(entry.get("starts_after", "0")),
        stops_after_ms=instant(entry.get("stops_after", "0")),
        stop_exit_code=entry.get("stop_exit_code"),
        saves_on_stop=entry.get("saves_on_stop", True),
        breaks_replica=entry.get("breaks_replica"),
    )


def instant(text: str) -> Millis:
    """Milliseconds since the world began."""
    return parse_duration(str(text), field="instant")
