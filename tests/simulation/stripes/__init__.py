"""Simulation of stripes: one object has the batches of many partitions."""
