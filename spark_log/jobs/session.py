"""The Spark session of a job."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING


def job_session(name: str) -> SparkSession:
    """Return the session that ``spark-submit`` prepared, or a new one.

    Unless ``PYSPARK_PYTHON`` says otherwise, tasks run the Python of this process: Spark would take
    the ``python3`` on the ``PATH``, another one where an environment is not activated. Unless
    ``spark.redaction.regex`` is set, the session shows no options for the file system.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"spark-log {name}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if spark.conf.get(REDACTION_SETTING, None) is None:
        # `spark.conf.set` refuses settings of Spark's core; the builder sets them for the session.
        SparkSession.builder.config(REDACTION_SETTING, REDACTION).getOrCreate()
    return spark
