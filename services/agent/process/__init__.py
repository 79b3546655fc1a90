"""Real processes of one host: a replica is started, watched, stopped and found again here, without knowing any fact.

`Replicas` (replicas.py) is the way in. It asks one `launcher` process to fork a small `keeper` per replica; the keeper
is the parent of the user's command and outlives the agent, so that runs, exit codes, grace periods and log limits do
not depend on the agent being alive. Everything the two sides know of each other is files in the replica's directory.
"""
