"""From sightings to what is said: each incident when it begins, becomes graver, goes on (now and then) and ends. Pure.

Events (a line of a log) end when they are quiet for a window. States (a reading of a device) end when readings no
longer show them, for a while: what comes and goes is one incident.
"""

from collections.abc import Iterable

import msgspec

from services.agent.signals.signal import raise_signal
from services.agent.signals.storms import WINDOW_MS, Key, gather, join, key_of
from tenure.domain.severity import Severity
from tenure.domain.units import MINUTE, Millis
from tenure.events.reports import HealthSignal

AGAIN_MS: Millis = MINUTE
"""An incident that goes on is said again at most so often; one that becomes graver at once."""
SETTLE_MS: Millis = MINUTE
"""A state is over when readings have not shown it for so long."""
OPEN_MAX, SAID_MAX = 512, 64
"""Incidents followed at a time, and said at a time."""


class Incidents:
    """The open incidents of one host. One owner, one thread; all instants are the agent's (epoch ms)."""

    def __init__(self, *, window_ms: Millis = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._open: dict[Key, HealthSignal] = {}
        self._heard_at: dict[Key, Millis] = {}
        """When each was last read of, which may be long after it was written."""
        self._events: set[str] = set()
        """Sources whose signals are events."""
        self._said: dict[Key, tuple[Millis, HealthSignal]] = {}
        self._changed: dict[Key, None] = {}

    def adopt(
        self, signals: Iterable[HealthSignal], *, sources: Iterable[str], events: Iterable[str], now: Millis
    ) -> None:
        """Go on with incidents that the log has as open. Those of a source that is watched no more are over."""
        watched = set(sources)
        self._events |= set(events)
        for signal in signals:
            key = key_of(signal)
            self._open[key], self._heard_at[key], self._said[key] = signal, now, (now, signal)
            if signal.source not in watched:
                self._finish(key)

    def sighted(self, signals: Iterable[HealthSignal], *, source: str, now: Millis) -> None:
        """Events of `source` that were read now."""
        self._events.add(source)
        for signal in gather(signals, window_ms=self._window_ms):
            self._note(signal, now)

    def observed(self, signals: Iterable[HealthSignal], *, source: str, now: Millis) -> None:
        """A whole reading of `source`: what it does not show has passed."""
        shown = gather(signals, window_ms=self._window_ms)
        for signal in shown:
            self._note(signal, now)
        keys = {key_of(signal) for signal in shown}
        for key in [key for key in self._open if key[0] == source and key not in keys]:
            if now - self._heard_at[key] >= SETTLE_MS:
                self._finish(key)

    def due(self, now: Millis) -> list[HealthSignal]:
        """What is to be said now, gravest first, at most `SAID_MAX`; `said` once the log has it."""
        for key in [key for key in self._open if key[0] in self._events]:
            if now - self._heard_at[key] >= self._window_ms:
                self._finish(key)
        ready = [self._open[key] for key in self._changed if self._is_ready(key, now)]
        return sorted(ready, key=lambda signal: (-signal.severity.rank, signal.first_at, key_of(signal)))[:SAID_MAX]

    def said(self, signals: Iterable[HealthSignal], now: Millis) -> None:
        """The log has these."""
        for signal in signals:
            key = key_of(signal)
            if self._open.get(key) == signal:
                self._changed.pop(key, None)
                if signal.over:
                    del self._open[key], self._heard_at[key]
            if signal.over:
                self._said.pop(key, None)
            else:
                self._said[key] = (now, signal)

    @property
    def waiting(self) -> bool:
        """Something is open, so that time alone may give reason to speak."""
        return bool(self._open)

    def shows(self, source: str) -> bool:
        """Whether something of `source` is open."""
        return any(key[0] == source for key in self._open)

    def _note(self, signal: HealthSignal, now: Millis) -> None:
        key = key_of(signal)
        if key not in self._open and len(self._open) >= OPEN_MAX:
            signal = _flood(now)
            key = key_of(signal)
        known = self._open.get(key)
        if known is None:
            self._open[key] = signal
            self._changed[key] = None
        else:
            self._open[key] = joined = _latest(join(known, signal), signal)
            told = self._said.get(key)
            if told is None or _differs(told[1], joined, event=key[0] in self._events):
                self._changed[key] = None
        self._heard_at[key] = now

    def _finish(self, key: Key) -> None:
        if not self._open[key].over:
            self._open[key] = msgspec.structs.replace(self._open[key], over=True)
            self._changed[key] = None

    def _is_ready(self, key: Key, now: Millis) -> bool:
        signal, told = self._open[key], self._said.get(key)
        if told is None or signal.over or signal.severity.rank > told[1].severity.rank:
            return True
        return now - told[0] >= AGAIN_MS


def _latest(joined: HealthSignal, signal: HealthSignal) -> HealthSignal:
    """The newest words, where they are as grave: numbers in them change."""
    if signal.code != joined.code or signal.severity is not joined.severity:
        return joined
    return msgspec.structs.replace(joined, text=signal.text, evidence=signal.evidence)


def _differs(told: HealthSignal, now: HealthSignal, *, event: bool) -> bool:
    """Whether there is news: for events their number too; a state that goes on is none."""
    if (told.code, told.severity, told.text) != (now.code, now.severity, now.text):
        return True
    return event and told.count != now.count


def _flood(now: Millis) -> HealthSignal:
    text = f"more than {OPEN_MAX} incidents at a time: the others are not told apart"
    return raise_signal("signals_flood", Severity.WATCH, text, source="agent", at=now)
