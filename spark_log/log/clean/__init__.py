"""Cleaning of a partition log: retention, merging, compaction, and deletion of spent files."""
