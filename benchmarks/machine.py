"""The machine that figures were measured on, and the directory that they are written to."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
CORES = 2
"""Number of cores of the Spark session."""


def machine() -> dict[str, str | int]:
    """Return the properties that figures depend on: processors, memory, system and versions."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count() or 0,
        "spark_cores": CORES,
        "memory_gb": round(memory_bytes / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
    }
