"""Where traces come from: other schedulers' records made into `trace.csv`, and months that are constructed."""
