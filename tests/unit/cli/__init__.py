"""Tests of the command line against a gateway with canned answers."""
