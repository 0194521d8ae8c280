"""`spark_session`: a Spark session that reads and writes ``format("spark_log")``."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_log.config import conf_directory
from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING
from spark_log.errors import InvalidConfigurationError

_EXTENSIONS: Final = "spark.sql.extensions"
_WITHOUT_DELTA: Final[dict[str, bool | float | int | str | None]] = {
    "spark.jars.packages": "",
    _EXTENSIONS: "",
    "spark.sql.catalog.spark_catalog": "builtin",
}
"""Replaces the settings of ``conf/spark-defaults.conf`` that load Delta."""


def spark_session(
    app_name: str = "spark-log", *, delta: bool = False, **settings: object
) -> SparkSession:
    """Return the running Spark session, or a new one that is ready for spark-log.

    A new session has the settings of ``conf/spark-defaults.conf``: Unix domain sockets to Python,
    UTC, and a pattern that hides storage options in plans and event logs. Python tasks run with
    this process's interpreter unless ``PYSPARK_PYTHON`` is set, so a virtual environment need not
    be activated. A configuration folder that ``SPARK_CONF_DIR`` names takes precedence over the
    file and over ``delta``, and ``settings`` take precedence over all.

    Starting Spark takes some seconds, so a line on stderr says so.

    A running session also gets the pattern that hides storage options, unless its
    ``spark.redaction.regex`` is set.

    Filters on a DataFrame are not pushed into the log: Spark 4.2 confuses the filters of different
    reads. Options such as ``startingTimestamp`` select segments before they are read.

    Args:
        app_name: the name that Spark's UI shows.
        delta: whether Spark can read and write Delta tables, such as ``__consumer_offsets``. Spark
            then looks up Delta's jars at each start, and downloads them from Maven Central at the
            first. Topics do not need Delta, and spark-log itself commits offsets without Spark.
        settings: Spark settings with ``_`` for ``.``: ``spark_sql_shuffle_partitions=4``. Values
            become text.

    Returns:
        The session. If one runs already, only those ``settings`` take effect that Spark lets a
        running session change.

    Raises:
        InvalidConfigurationError: ``delta`` is set, and the running session, or the configuration
            folder, is without Delta.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if "SPARK_CONF_DIR" not in os.environ and SparkSession.getActiveSession() is None:
        os.environ["SPARK_CONF_DIR"] = str(conf_directory())
        if _starts_java() and not delta:
            builder = builder.config(map=_WITHOUT_DELTA)
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), str(value))
    if _starts_java():
        what = "Spark with Delta, whose jars it looks up at Maven Central" if delta else "Spark"
        sys.stderr.write(f"spark-log: starting {what}, which takes some seconds\n")
        sys.stderr.flush()
    spark = builder.getOrCreate()
    if spark.conf.get(REDACTION_SETTING, None) is None:
        # `spark.conf.set` refuses settings of Spark's core; the builder sets them for the session.
        builder.config(REDACTION_SETTING, REDACTION).getOrCreate()
    if delta and "delta" not in (spark.conf.get(_EXTENSIONS, None) or ""):
        raise InvalidConfigurationError(
            f"this process's Spark runs without Delta ({_EXTENSIONS} does not name it), and cannot "
            f"load it any more: call spark_session(delta=True) before any other session of this "
            f"process, or name Delta in the folder of SPARK_CONF_DIR, as `spark-log init` does",
            key="delta",
        )
    return spark


def _starts_java() -> bool:
    """Whether a new session starts a Java process.

    It does not if this process has one already, was started by one, or uses Spark Connect.
    """
    elsewhere = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"} & os.environ.keys()
    return not elsewhere and SparkContext._gateway is None
