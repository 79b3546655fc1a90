"""The web console: pages for people in a browser, from the gateway and ClickHouse. Decides nothing, writes no fact."""
