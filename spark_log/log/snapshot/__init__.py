"""Snapshots of a partition: summaries of its segments and its producer state, up to an offset."""
