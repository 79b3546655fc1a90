"""Logs taken over at an instant: what is read of them, and what is made of it."""
