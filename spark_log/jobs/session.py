"""The Spark session of a job."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING


def job_session(name: str) -> SparkSession:
    """Return the session that ``spark-submit`` prepared, or a new one.

    If ``PYSPARK_PYTHON`` is not set, tasks run the Python of this process. Spark's default is the
    ``python3`` on the ``PATH``, which is another one if the environment is not activated. If
    ``spark.redaction.regex`` is not set, the session hides the options of the file system.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"spark-log {name}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if spark.conf.get(REDACTION_SETTING, None) is None:
        # `spark.conf.set` refuses settings of Spark's core; the builder sets them for the session.
        SparkSession.builder.config(REDACTION_SETTING, REDACTION).getOrCreate()
    return spark
