"""How a tool on the same machine is let in to read the log of a running `tenure up`. Apart: it costs time to import."""

from pathlib import Path

from tenure.log.access import Access
from tenure.log.permissions import READER
from tenure.runtime.data_dir import Endpoint


def reader_access(endpoint: Endpoint) -> Access:
    """The server and the key that may read everything and write nothing."""
    seed_file = None if endpoint.nats_key_file is None else Path(endpoint.nats_key_file)
    return Access(url=endpoint.nats, client=READER, seed_file=seed_file)
