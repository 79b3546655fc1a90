"""Recorded failures of other clusters as the outages of hosts: `tenure trace faults`."""
