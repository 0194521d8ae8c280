"""The log level that an operator sets from outside, for every process of the package."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from spark_log.errors import InvalidConfigurationError

LOG_LEVEL_VARIABLE: Final = "SPARK_LOG_LOG_LEVEL"
"""Environment variable with the level: debug, info, warning or error."""

_LEVELS: Final = ("debug", "info", "warning", "error")
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_handlers: list[logging.Handler] = []


def set_log_level() -> None:
    """Write the package's log lines to stderr, from the level on that `LOG_LEVEL_VARIABLE` names.

    For processes that are the package's own: the command line, the jobs, and Spark's Python
    workers. A program that uses the clients configures ``logging`` itself. Later calls in the same
    process change nothing.

    Raises:
        InvalidConfigurationError: the variable names no level.
    """
    level = os.environ.get(LOG_LEVEL_VARIABLE, "")
    if not level or _handlers:
        return
    if level.lower() not in _LEVELS:
        raise InvalidConfigurationError(
            f"the environment variable {LOG_LEVEL_VARIABLE} is {level!r}, expected one of "
            f"{', '.join(_LEVELS)}",
            key=LOG_LEVEL_VARIABLE,
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    _handlers.append(handler)
    log = logging.getLogger("spark_log")
    log.addHandler(handler)
    log.setLevel(level.upper())
