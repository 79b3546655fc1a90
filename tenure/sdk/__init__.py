"""What programs use to talk to a running system: a thin, typed, synchronous client of the gateway."""
