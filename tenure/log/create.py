"""`python -m tenure.log.create`: makes a cluster's log and the store of leases before its roles start.

For servers that several machines share.

Where one machine runs everything this is not needed: the first role makes the log.
"""

import argparse
import asyncio
import sys

from tenure.domain.refusal import Refusal
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.log.lease import make_store
from tenure.log.link import Lost, Refused
from tenure.log.options import add_log_arguments, log_access, of_arguments
from tenure.log.permissions import OPERATOR
from tenure.log.port import Unavailable


async def create(*, server: str | Access, cluster: str, replicas: int, max_gib: int) -> str:
    """Make the log, or find the one that is there. Returns its identity. Raises `Unavailable`, `Refusal`."""
    log = await JetStreamLog.connect(
        server, cluster=cluster, replicas=replicas, max_bytes=max_gib << 30 if max_gib else None
    )
    try:
        await make_store(Access(url=server) if isinstance(server, str) else server, replicas=log.replicas)
        await log.dead.ensure()
        await log.let_all_read()
        return await log.identity()
    except (Lost, Refused) as trouble:
        raise Unavailable(f"what belongs to the log: {trouble}") from trouble
    finally:
        await log.close()


def main() -> int:
    """The command. Exit status 1 with one line when the log cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tenure.log.create", description="Make a cluster's log.")
    add_log_arguments(parser)
    parser.add_argument("--cluster", required=True, help="name of the log")
    parser.add_argument("--replicas", type=int, default=3, choices=(1, 3, 5), help="servers that hold every fact")
    parser.add_argument("--max-gib", type=int, default=0, help="size at which it refuses new facts; 0: what there is")
    given = parser.parse_args()
    try:
        server = log_access(of_arguments(given), client=OPERATOR)
        identity = asyncio.run(
            create(server=server, cluster=given.cluster, replicas=given.replicas, max_gib=given.max_gib)
        )
    except (Refusal, Unavailable) as trouble:
        print(trouble, file=sys.stderr)
        return 1
    print(f"the log of {given.cluster} is {identity}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
