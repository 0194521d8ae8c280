"""Streaming reads in Spark: micro-batches, offsets, limits, lag, and progress in a group."""
