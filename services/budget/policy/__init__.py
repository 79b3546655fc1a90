"""The rules of the budget role, one a file."""
