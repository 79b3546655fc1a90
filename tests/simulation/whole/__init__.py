"""The whole system in one process, from one seed: the live loops of all roles, a virtual clock, and faults."""
