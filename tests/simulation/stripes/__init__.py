"""A prototype of stripes and its simulation: one object has batches of many partitions (ADR 29)."""
