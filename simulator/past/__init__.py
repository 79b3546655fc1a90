"""The log of a system as a simulation that takes over at an instant of it: what would have been under other rules.

facts, or the lines of an export (lines) -> Past (story) -> state at an instant (begin), lengths of work (worked),
outages (outages) -> Replay (replay): the deciders go on from there -> who gains, who loses (gains)
"""
