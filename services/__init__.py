"""The roles of tenure: each a folder with a pure decider and a thin shell. Roles never import one another."""
