"""Lets Spark find ``format("spark_log")`` without registration (it imports ``pyspark_*``)."""

from spark_log.datasource import SparkLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
