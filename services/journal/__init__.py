"""The journal role: the log into ClickHouse, exactly once."""
