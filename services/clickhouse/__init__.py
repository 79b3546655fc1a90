"""The embedded default database: owns one chdb data path and serves the ClickHouse HTTP protocol on loopback."""
