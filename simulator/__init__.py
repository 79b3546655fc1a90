"""The services' own deciders on a virtual clock and the log in memory: for scenarios, what-ifs and replays."""
