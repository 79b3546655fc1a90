"""Values every role speaks about: budgets, contracts, jobs, hosts, reasons. Frozen, pure, standard library only."""
