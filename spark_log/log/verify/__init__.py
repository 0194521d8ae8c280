"""Verification of a partition log: each file of its directory, and the log that they make up."""
