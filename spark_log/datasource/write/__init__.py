"""Writes from Spark, batch and streaming: columns, partitions, and the appends of a task."""
