"""The placer's rules, one a file. `may_disrupt` is the only gate to ending a run early."""
