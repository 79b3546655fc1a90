"""`python -m tests.contract.one_replica FOLDER [CONFIG]`: the embedded engine makes what it can of a replica.

Its Keeper is one in memory that the engine has for its own tests, and nobody can fetch from it: tables are made, with
all their arguments checked, but take no rows. Statements come as a JSON list on stdin. What tables there are is
printed, and what the engine knows of macros and clusters, by CONFIG or a configuration of its own.
"""

import json
import os
import sys
from pathlib import Path

from chdb import session

CONFIG = """<clickhouse>
<zookeeper><implementation>testkeeper</implementation></zookeeper>
<macros><shard>01</shard><replica>r1</replica></macros>
<logger><level>none</level><console>0</console></logger>
</clickhouse>
"""
_ASKED = {
    "tables": """
        SELECT name, engine, sorting_key, partition_key
        FROM system.tables WHERE database = 'tenure' AND name != 'migrations' ORDER BY name""",
    "macros": "SELECT macro, substitution FROM system.macros ORDER BY macro",
    "servers": "SELECT cluster, shard_num, host_name FROM system.clusters ORDER BY ALL",
}


def main(folder: Path, config: Path | None) -> None:
    """Run the statements in an empty database and say what there is."""
    if config is None:
        config = folder / "config.xml"
        config.write_text(CONFIG)
    engine = session.Session(f"{folder / 'data'}?config-file={config}")
    engine.query("CREATE DATABASE tenure")
    engine.query("USE tenure")
    for statement in json.load(sys.stdin):
        engine.query(statement)
    found = {name: json.loads(str(engine.query(query, "JSONCompact")))["data"] for name, query in _ASKED.items()}
    print(json.dumps(found), flush=True)
    os._exit(0)  # closing would wait for replicas that never were there


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
