"""Appends to a partition log: validation, producer state, and merges at the log's end."""
