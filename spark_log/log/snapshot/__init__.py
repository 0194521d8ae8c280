"""Snapshots of a partition log: producer state and an entry for each segment, up to one offset."""
