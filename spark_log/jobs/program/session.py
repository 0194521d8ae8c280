"""The Spark session of a job."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_log.datasource import spark_session


def job_session(name: str) -> SparkSession:
    """Return the session that ``spark-submit`` prepared, or a new `spark_session`, in UTC.

    A job may read and write Delta tables only if ``spark-submit`` got Delta's jars.
    """
    return spark_session(f"spark-log {name}", spark_sql_session_timeZone="UTC")
