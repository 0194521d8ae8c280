"""Appends to a partition log: the append protocol, validation, producer state, derived files."""
