"""Simulation of a topic whose cold part is a Delta table."""
