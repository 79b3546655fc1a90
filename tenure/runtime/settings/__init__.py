"""The configuration of every process: one table of settings, read from flags, the environment and one YAML file."""
