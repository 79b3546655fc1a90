"""Between two runs, after the look (S62, S63): an exit is told after the word on its host, if one is about to come.

Told before, a run that died of its host would count as failed, and the next would start there.
"""

import asyncio

from services.agent.state import Replica, State

VERDICT_S = 2.0
"""So long it is waited for at most: the health role may be away, and GPUs must become free all the same."""
_LOOK_S = 0.02


async def word_on_host(state: State, replica: Replica) -> None:
    """Return when the log has said what becomes of the replica's host, and of its run; or when time is up."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + VERDICT_S
    while state.awaits_verdict(replica.key, replica.host) and clock() < deadline:
        await asyncio.sleep(_LOOK_S)
