"""Runs a script of ``jobs/`` in this process, for drivers that have put a fault into it."""

import os
import runpy
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_JOBS = Path(__file__).parents[2] / "jobs"


def run_job(script: str, *, master: str, log_level: str) -> None:
    """Start a quiet Spark session, and run a script in it with the arguments of this program."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": log_level,
    }
    SparkSession.builder.master(master).config(map=settings).getOrCreate()
    runpy.run_path(str(_JOBS / script), run_name="__main__")
