"""The gateway's rules, one a module."""
