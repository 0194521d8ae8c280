"""Batch reads in Spark: offsets and input splits on the driver, records in tasks."""
