"""ClickHouse as tenure uses it: connecting, migrations, and what is read for reports. The journal writes.

The same calls reach the embedded default (`services/clickhouse`) and a server of one's own; only the URL differs.
"""
