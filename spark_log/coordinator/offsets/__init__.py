"""Committed offsets: the table ``__consumer_offsets``, its commits, and its upkeep."""
