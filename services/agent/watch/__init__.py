"""Looking after the hosts' health: the sources of signals, read in threads of their own, and what is said of them."""
