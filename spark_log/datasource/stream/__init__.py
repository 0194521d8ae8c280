"""Streaming reads in Spark: micro-batches, their offsets, limits, lag and progress."""
