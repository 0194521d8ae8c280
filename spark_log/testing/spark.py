"""A local Spark session with Delta for tests, made once per test run.

Use it in a ``conftest.py``::

    from spark_log.testing.spark import spark  # a pytest fixture
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The jar for delta-spark 4.4.0 on pyspark 4.2; of 4.4.1, PyPI has no jar."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A ``local[2]`` session with Delta's extension and catalog, stopped at the end of the run."""
    session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def local_session(directory: Path) -> SparkSession:
    """Return a ``local[2]`` session with its files under ``directory``, which logs errors only.

    The first session on a machine downloads Delta's jars with Spark's Ivy.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = DELTA_SETTINGS | {
        "spark.jars.packages": DELTA_PACKAGE,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        REDACTION_SETTING: REDACTION,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("spark-log tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
