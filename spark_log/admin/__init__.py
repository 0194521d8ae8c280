"""`Admin`: topics, settings, offsets, records and groups; its answers as Arrow tables."""
