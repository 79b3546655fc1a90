"""What turns a pure decider into a running process: the one loop, the clock, options, snapshots, telemetry."""
