"""Real faults on real parts: every role a process of its own, a real log, a real database, real jobs."""
