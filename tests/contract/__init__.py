"""One suite for every adapter of a port, and for the protocols that others speak to us."""
