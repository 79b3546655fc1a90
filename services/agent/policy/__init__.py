"""The agent's rules: what to do with a run, and what to say of it."""
