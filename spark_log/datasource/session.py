"""`spark_session`: a Spark session that reads and writes ``format("spark_log")``."""

from __future__ import annotations

import os
import sys
from importlib.resources import files

from pyspark.sql import SparkSession

from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING


def spark_session(app_name: str = "spark-log", **settings: object) -> SparkSession:
    """Return the running Spark session, or a new one that is ready for spark-log.

    A new session has the settings of ``conf/spark-defaults.conf``: Delta's jars (fetched from Maven
    Central at the first start) and catalog, Unix domain sockets to Python, UTC, and a pattern that
    hides storage options in plans and event logs. Python tasks run with this process's interpreter
    unless ``PYSPARK_PYTHON`` is set, so a virtual environment need not be activated. A
    configuration folder that ``SPARK_CONF_DIR`` names takes precedence over the file, and
    ``settings`` take precedence over both.

    Spark hides the options of the file system in any case, unless ``spark.redaction.regex`` says
    what it hides.

    Filters on a DataFrame are not pushed into the log: Spark 4.2 confuses the filters of different
    reads. Options such as ``startingTimestamp`` select segments before they are read.

    Args:
        app_name: the name that Spark's UI shows.
        settings: Spark settings with ``_`` for ``.``: ``spark_sql_shuffle_partitions=4``. Values
            become text.

    Returns:
        The session. If one runs already, only those ``settings`` take effect that Spark lets a
        running session change.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if "SPARK_CONF_DIR" not in os.environ and SparkSession.getActiveSession() is None:
        os.environ["SPARK_CONF_DIR"] = str(files("spark_log") / "conf")
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), str(value))
    spark = builder.getOrCreate()
    if spark.conf.get(REDACTION_SETTING, None) is None:
        # `spark.conf.set` refuses settings of Spark's core; the builder sets them for the session.
        builder.config(REDACTION_SETTING, REDACTION).getOrCreate()
    return spark
