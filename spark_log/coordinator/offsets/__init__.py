"""Committed offsets: the Delta table ``__consumer_offsets``, its commits, expiry and repair."""
