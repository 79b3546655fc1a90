"""The `priority` policy: what labs have today, to compare `fair` with. A role in the place of the services' placer.

    queue in order -> protected within the team's limit, at risk beyond it, fill last -> whole gangs

- B1 order: priority, then first come, first served; a requeued job keeps its submit time. Everyone asks for HIGH, so
  every job with a contract is HIGH whatever its trace says, and jobs without one are preemptible fill. Who can be
  protected (B2) comes before who cannot. The past of a team counts nothing. (NVIDIA OSMO: HIGH, NORMAL, LOW, within
  one by submission.)
- B2 limit: a team (a leaf budget) holds at most its share of the installed GPUs in protected runs at once. (Slurm:
  GrpTRES of an account or QOS; Run:ai: non-preemptible work only inside the project's deserved GPUs; OSMO: a guarantee
  for each pool.)
- B3 opting out: a protected run is never preempted, however long it runs: there is no minimum runtime with an end.
- B4 at risk: beyond its limit a team may use what nobody else does, as preemptible runs, and takes fill's GPUs. A run
  keeps the standing it was started with (Slurm: a job's QOS).
- B5 who gives way: fill to every HIGH job, runs at risk to a protected one, nobody to an equal; whole gangs, no run
  without need, the cheapest to restart first; freed GPUs are kept for who asked. (Slurm: preempt/qos with REQUEUE;
  Kueue: reclaim of what was borrowed.)
- B6 no blocking: who cannot start is passed over (Kueue: BestEffortFIFO). No reservation for the first in the queue as
  EASY backfill makes it: that needs the time at which running jobs end, which research jobs do not know.
- B7 draining hosts: preemptible runs leave at once, protected ones run to their end; on a fatal host all end.

What the services' placer does well the baseline has too: packing, feasibility before harm, escrow, gangs whole or not
at all, requeue with saved progress. I1, I2, I4, I5, I6, I7, I8 and I10 hold. I3 holds as B3 means it: a run at risk has
no protection, and says so (`protected_until` is its start). I9 is no rule here: limits do not look at the past.
docs/decisions/0009-what-priority-means.md names the sources and says what was weighed.
"""

from simulator.baseline.roles import PRIORITY

__all__ = ["PRIORITY"]
