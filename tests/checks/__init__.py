"""Checkers that read only the log: the invariants of the design, for any kind of test that has one."""
