"""A Spark session, for the comparison with Spark's own parser."""

from spark_log.testing.spark import spark

__all__ = ["spark"]
