"""Verification of a partition log: each file in its directory, and all of them together."""
