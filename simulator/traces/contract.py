"""Contracts for jobs that never signed one: rules such as `gpus<=8, share=30%: unallocated, resumable`.

A rule is conditions, a colon, and settings, each separated by commas. The first rule whose conditions all hold for a
job writes its contract; jobs that none fits fall to the default rules, of which the last fits all.
"""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from simulator.traces.record import Record
from tenure.domain.admission import PRIORITY_MAX
from tenure.domain.job import MIN_RUNTIME_CAP
from tenure.domain.names import check_word
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.refusal import Refusal
from tenure.domain.units import MINUTE, SECOND, parse_duration

DEFAULT_RULES = (
    "gpus<=8, share=30%: unallocated, resumable",
    "gpus<=8, runtime<=15m: min_runtime=15m",
    "all: min_runtime=50%, floor=15m, cap=8h, resumable",
)
"""Small jobs without a deadline run free, short ones are debugging, the rest protects half of its time."""
DEBUG_GPUS, DEBUG_S = 8, 15 * MINUTE // SECOND
MEDIUM_GPUS = 64
_LENGTHS = ("runtime", "limit")
_NAMES = ("budget", "user", "qos", "partition")
_CONDITIONS = ("all", "gpus", *_LENGTHS, "share", *_NAMES)
_SETTINGS = ("unallocated", "min_runtime", "floor", "cap", "resumable", "priority", "kind")
_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}
_CONDITION = re.compile(r"([a-z_]+)\s*(<=|>=|=|<|>)\s*(\S.*)")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<=": lambda value, bound: value <= bound,
    ">=": lambda value, bound: value >= bound,
    "<": lambda value, bound: value < bound,
    ">": lambda value, bound: value > bound,
    "=": lambda value, bound: value == bound,
}
Condition = Callable[[Record], bool]


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is taken to have signed."""

    min_runtime_s: int
    resumable: bool
    priority: int
    kind: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: the jobs it is for, and the contract it writes. `fraction` is of the runtime, or None for `fixed_s`."""

    text: str
    conditions: tuple[Condition, ...]
    fraction: float | None = None
    fixed_s: int = 0
    floor_s: int = 0
    cap_s: int = MIN_RUNTIME_CAP // SECOND
    resumable: bool = False
    priority: int = 0
    kind: str = ""

    def fits(self, record: Record) -> bool:
        """Whether every condition holds."""
        for condition in self.conditions:  # noqa: SIM110  # all() would cost a generator for each job and rule
            if not condition(record):
                return False
        return True

    def contract(self, record: Record) -> Contract:
        """What the rule writes for a job."""
        min_runtime_s = self.fixed_s
        if self.fraction is not None:
            min_runtime_s = min(max(round(record.runtime_s * self.fraction), self.floor_s, 1), self.cap_s)
        return Contract(
            min_runtime_s=min_runtime_s,
            resumable=self.resumable,
            priority=self.priority,
            kind=self.kind or kind_of(gpus=record.gpus, min_runtime_s=min_runtime_s),
        )


def kind_of(*, gpus: int, min_runtime_s: int) -> str:
    """The label of a job: what it is free for, else its size."""
    if min_runtime_s == 0:
        return "sweep"
    if gpus <= DEBUG_GPUS:
        return "debug" if min_runtime_s <= DEBUG_S else "small"
    return "medium" if gpus <= MEDIUM_GPUS else "large"


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """The rules in the order given, then the default ones. Raises `Refusal` naming the rule and what is wrong in it."""
    return tuple(_rule(text, number=number) for number, text in enumerate((*texts, *DEFAULT_RULES), start=1))


def sign(record: Record, rules: Sequence[Rule]) -> tuple[int, Contract]:
    """The first rule that fits a job, by its index, and the contract it writes. `record.budget` is known by now."""
    for index, rule in enumerate(rules):
        if rule.fits(record):
            return index, rule.contract(record)
    raise AssertionError("the last of the default rules fits every job")


def _rule(text: str, *, number: int) -> Rule:
    field = f"rule {shown(text)}"
    before, colon, after = text.partition(":")
    if not colon:
        raise Refusal(field=field, problem="no ':'", fix="write CONDITIONS: SETTINGS, such as gpus<=1: min_runtime=15m")
    conditions = [_condition(part.strip(), field=field, number=number) for part in before.split(",")]
    settings: dict[str, str] = {}
    for part in after.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _SETTINGS:
            near = did_you_mean(name, _SETTINGS)
            raise Refusal(
                field=field, problem=f"unknown setting {shown(name)}", fix=f"{near}known: {', '.join(_SETTINGS)}"
            )
        if name in settings:
            raise Refusal(field=field, problem=f"{name} is set twice", fix="set it once")
        if equals and not value:
            raise Refusal(field=field, problem=f"{name} has no value", fix=f"write {name}=VALUE")
        settings[name] = value
    return _with_settings(Rule(text=text, conditions=tuple(filter(None, conditions))), settings, field=field)


def _with_settings(rule: Rule, settings: dict[str, str], *, field: str) -> Rule:
    """The rule with its settings read. Raises `Refusal`."""
    free = "unallocated" in settings
    if free == ("min_runtime" in settings):
        problem = "both unallocated and min_runtime" if free else "neither min_runtime nor unallocated"
        raise Refusal(field=field, problem=problem, fix="set one of them")
    if free and settings["unallocated"]:
        raise Refusal(field=field, problem="unallocated takes no value", fix="write unallocated alone")
    changes: dict[str, object] = {}
    asked = settings.get("min_runtime", "")
    percent = _PERCENT.fullmatch(asked)
    if percent:
        changes["fraction"] = _percent(percent, name="min_runtime", field=field)
    elif not free:
        changes["fixed_s"] = _seconds(asked, name="min_runtime", field=field)
    for name in ("floor", "cap"):
        if name in settings:
            if not percent:
                raise Refusal(field=field, problem=f"{name} bounds a percentage only", fix=f"take {name} out")
            changes[f"{name}_s"] = _seconds(settings[name], name=name, field=field)
    if "resumable" in settings:
        resumable = _BOOLEANS.get(settings["resumable"].lower() or "yes")
        if resumable is None:
            problem = f"resumable={shown(settings['resumable'])}"
            raise Refusal(field=field, problem=problem, fix="write resumable or resumable=no")
        changes["resumable"] = resumable
    if "priority" in settings:
        changes["priority"] = _priority(settings["priority"], field=field)
    if "kind" in settings:
        changes["kind"] = check_word(settings["kind"], field=field)
    read = msgspec.structs.replace(rule, **changes)
    if read.floor_s > read.cap_s:
        raise Refusal(field=field, problem="the floor is above the cap", fix="lower floor, or raise cap")
    return read


def _condition(text: str, *, field: str, number: int) -> Condition | None:
    """One condition as a question to a job; None for `all`, which asks nothing. Raises `Refusal`."""
    if text == "all":
        return None
    match = _CONDITION.fullmatch(text)
    name = match[1] if match else text.split("=")[0].strip()
    if name not in _CONDITIONS:
        near = did_you_mean(name, _CONDITIONS)
        fix = f"{near}known: {', '.join(_CONDITIONS)}"
        raise Refusal(field=field, problem=f"unknown condition {shown(name)}", fix=fix)
    if match is None or name == "all":
        raise Refusal(field=field, problem=f"{shown(text)} compares nothing", fix="write such as gpus<=8, or all")
    _, sign_, value = match.groups()
    if name in ("share", *_NAMES):
        if sign_ != "=":
            raise Refusal(field=field, problem=f"{name} has no order", fix=f"write {name}={value}")
        if name == "share":
            return _share(value, number=number, field=field)
        return _named(name, value)
    bound = _gpus(value, field=field) if name == "gpus" else _seconds(value, name=name, field=field)
    return _compared(name, _COMPARE[sign_], bound)


def _compared(name: str, compare: Callable[[int, int], bool], bound: int) -> Condition:
    if name == "gpus":
        return lambda record: compare(record.gpus, bound)
    if name == "runtime":
        return lambda record: compare(record.runtime_s, bound)
    return lambda record: record.limit_s > 0 and compare(record.limit_s, bound)


def _named(name: str, pattern: str) -> Condition:
    """Whether a name fits a pattern with `*` and `?`; capitals count."""
    wanted = re.compile(fnmatch.translate(pattern))

    @lru_cache(maxsize=10_000)
    def fits(word: str) -> bool:
        return wanted.match(word) is not None

    return lambda record: fits(getattr(record, name))


def _share(value: str, *, number: int, field: str) -> Condition:
    """A part of the jobs that reach the rule, by a hash of the job's id: the same jobs whenever they are imported."""
    percent = _PERCENT.fullmatch(value)
    if percent is None:
        raise Refusal(field=field, problem=f"{shown(value)} is not a percentage", fix="write such as share=30%")
    below = round(_percent(percent, name="share", field=field) * 2**64)
    salt = number.to_bytes(4, "big")  # rules after each other choose independently

    def chosen(record: Record) -> bool:
        digest = hashlib.blake2b(record.job.encode(), digest_size=8, salt=salt).digest()
        return int.from_bytes(digest, "big") < below

    return chosen


def _percent(match: re.Match[str], *, name: str, field: str) -> float:
    percent = float(match[1])
    if not 0 < percent <= 100:
        raise Refusal(field=field, problem=f"{name} of {match[0]}", fix="use more than 0 and at most 100 %")
    return percent / 100


def _seconds(text: str, *, name: str, field: str) -> int:
    try:
        seconds = -(-parse_duration(text, field=name) // SECOND)
    except Refusal as refusal:
        raise Refusal(field=field, problem=f"{name}: {refusal.problem}", fix=refusal.fix) from refusal
    if seconds == 0 and name == "min_runtime":
        raise Refusal(field=field, problem="min_runtime of 0", fix="write unallocated")
    return seconds


def _gpus(text: str, *, field: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Refusal(field=field, problem=f"{shown(text)} is no number of GPUs", fix="write such as gpus<=8")
    return int(text)


def _priority(text: str, *, field: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,6}", text) or abs(int(text)) > PRIORITY_MAX:
        fix = f"use a whole number from {-PRIORITY_MAX} to {PRIORITY_MAX}"
        raise Refusal(field=field, problem=f"priority of {shown(text)}", fix=fix)
    return int(text)
