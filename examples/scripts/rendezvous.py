"""A gang whose ranks meet over MASTER_ADDR and MASTER_PORT, as torch.distributed would, and add up their ranks.

python rendezvous.py SECONDS    meets, then works for so long
"""

import os
import socket
import sys
import time

JOIN_S = 30.0


def main() -> None:
    """Meet, agree on the sum of all ranks, work."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    total = gather(address, world) if rank == 0 else join(address, rank)
    assert total == world * (world - 1) // 2, f"rank {rank} got {total}"
    print(f"rank {rank} of {world} met the others at {address[0]}:{address[1]}; sum of ranks {total}", flush=True)
    time.sleep(float(sys.argv[1]))


def gather(address: tuple[str, int], world: int) -> int:
    """Rank 0: hear every rank once, tell all of them the sum."""
    with socket.create_server(address, reuse_port=False) as server:
        server.settimeout(JOIN_S)
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = sum(int(peer.recv(16)) for peer in peers)
        for peer in peers:
            peer.sendall(str(total).encode())
            peer.close()
    return total


def join(address: tuple[str, int], rank: int) -> int:
    """Any other rank: say who I am, hear the sum. Rank 0 may come up later than I do."""
    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            with socket.create_connection(address, timeout=JOIN_S) as peer:
                peer.sendall(str(rank).encode())
                return int(peer.recv(16))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
