"""The configuration files that the package ships: for Spark, and for the command line.

A checkout has them in ``conf/`` beside the package; ``setup.py`` puts them into the wheel, as
``spark_log/conf/``. This module imports only the standard library, because ``setup.py`` runs it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

CONF_FILES: Final = (
    "log4j2.properties",
    "spark-defaults.conf",
    "spark-env.sh",
    "spark-log.properties",
)
"""Names of the files that are shipped, in alphabetical order."""


def conf_directory() -> Path:
    """Return the folder with `CONF_FILES`: the wheel's, or ``conf/`` of a checkout."""
    package = Path(str(files("spark_log")))
    shipped = package / "conf"
    return shipped if shipped.is_dir() else package.parent / "conf"
