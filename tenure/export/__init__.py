"""The log for other programs: the facts as lines of one documented schema, live or simulated."""
