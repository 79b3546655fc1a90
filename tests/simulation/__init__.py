"""Whole simulated systems: worlds whose right outcome was worked out by hand, and ones that chance made up."""
