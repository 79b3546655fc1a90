"""P2, charge: an allocated run is charged what its replicas hold, as they hold it.

From `ReplicasStarted` to `ReplicasExited`; on a silent host only to its last sign of life, until it is heard again with
the run (nothing was lost) or lost for good (the end stays there). A refund takes back what was held since an instant.
GPUs are counted by type, and weighed by the rates of their time.
The same spans, in the same curve, for unallocated runs; they are not charged, only counted.
"""

from services.ranker.ledger import HELD, REFUNDED, SPARE, Account
from services.ranker.run import Held, Run
from services.ranker.weighed import Weighed
from tenure.domain.units import GpuMillis, Millis


def begin(run: Run, held: Held, accounts: tuple[Account, ...], *, at: Millis) -> None:
    """The replica holds its GPUs since `at`."""
    if held.start is not None:
        return
    held.start = at
    _hold(run, accounts, held.gpus, since=at)
    _follow(run, held, accounts)


def finish(run: Run, held: Held, accounts: tuple[Account, ...], *, at: Millis) -> None:
    """The replica, or what is known of it, ended at `at`."""
    if held.end is None:
        held.end = at
        _follow(run, held, accounts)


def pause(run: Run, held: Held, accounts: tuple[Account, ...], *, last_seen: Millis | None) -> None:
    """The replica's host is silent since `last_seen`; None: it is heard again."""
    held.paused = last_seen
    _follow(run, held, accounts)


def refund(run: Run, accounts: tuple[Account, ...], *, since: Millis, until: Millis, gpu_ms: GpuMillis) -> None:
    """Take back what the run held during [since, until), at the instants it was charged at. It is `gpu_ms` in all.

    Should the spans known here not add up to that, the sum that was said holds and is spread evenly.
    """
    spans = [
        (max(held.start, since), min(held.charged_to, until), held.gpus)
        for held in run.replicas.values()
        if held.start is not None and held.charged_to is not None
    ]
    known = sum(max(0, end - begin) * gpus for begin, end, gpus in spans)
    for account in accounts:
        account.changed(REFUNDED)
        if known == gpu_ms:
            for begin, end, gpus in spans:
                account.refunded.add(run.gpu_type, since=begin, until=end, gpus=gpus)
        else:
            spread(account.refunded, run.gpu_type, since=since, until=until, gpu_ms=gpu_ms)


def spread(refunded: Weighed, gpu_type: str, *, since: Millis, until: Millis, gpu_ms: GpuMillis) -> None:
    """Exactly `gpu_ms` of a type in [since, until), whole GPUs at a time, the remainder at its end."""
    if until > since:
        gpus, rest = divmod(gpu_ms, until - since)
        refunded.add(gpu_type, since=since, until=until, gpus=gpus)
        refunded.add(gpu_type, since=until - rest, until=until, gpus=1)


def _follow(run: Run, held: Held, accounts: tuple[Account, ...]) -> None:
    """Make the books end where the occupancy does."""
    if held.start is None:
        return
    to = held.held_to
    if to != held.charged_to:
        if held.charged_to is not None:
            _hold(run, accounts, held.gpus, since=held.charged_to)
        if to is not None:
            _hold(run, accounts, -held.gpus, since=to)
        held.charged_to = to


def _hold(run: Run, accounts: tuple[Account, ...], gpus: int, *, since: Millis) -> None:
    """Count the run's occupancy where it belongs."""
    part = HELD if run.allocated else SPARE
    for account in accounts:
        account.hold(part, run.gpu_type, gpus, since=since)
