"""The rules of the health role, one a module."""
