"""What this package says to the Python processes that Spark runs it in."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar

from pyspark import TaskContext

from spark_log.datasource.options.option_parser import STORAGE_PREFIX
from spark_log.errors import SparkLogError

_P = ParamSpec("_P")
_R = TypeVar("_R")

REDACTION_SETTING: Final = "spark.redaction.regex"
REDACTION: Final = "(?i)secret|password|token|access[.]?key|^storage[.]"
"""Spark's own default, and options for the file system, which it shows otherwise."""

_SPARKS_REDACTION: Final = "(?i)secret|password|token|access[.]?key"
_SECRETS: Final = re.compile(
    r"(?i)key|secret|token|pass|connection_string|credential|sas|signature"
)


class ShownSecretWarning(UserWarning):
    """Spark shows the value of an option that may be a secret."""


# --- errors --------------------------------------------------------------------------------------


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Let Spark report an error of this package by its message alone, without a traceback.

    Spark's worker makes a text of an error and hands it to the JVM, which repeats it for each
    attempt at a task, for the stage and for the job. Whether there is a traceback in it says an
    environment variable, looked at just then; the process ends with the error.
    """
    try:
        yield
    except SparkLogError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def without_traceback(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make `hide_traceback` hold for a method that Spark calls."""

    @wraps(method)
    def calling(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with hide_traceback():
            return method(*args, **kwargs)

    return calling


# --- the end of a read ---------------------------------------------------------------------------


class _QuietTraceback(ModuleType):
    """The module ``traceback`` as ``pyspark.daemon`` sees it, which prints no closed pipe."""

    def __init__(self, traceback: ModuleType) -> None:
        super().__init__(traceback.__name__)
        self._traceback = traceback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traceback, name)

    def print_exc(self, *args: Any, **kwargs: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            self._traceback.print_exc(*args, **kwargs)


def silence_broken_pipe() -> None:
    """Keep a task's process silent when Spark hangs up before it has read everything.

    That is how ``show()``, ``limit`` and ``take`` end a read. The process, which meets a closed
    pipe, has nothing to tell anybody, but ``pyspark.daemon`` prints a traceback (Spark 4.2.0).
    """
    daemon = sys.modules.get("__main__")
    spec = getattr(daemon, "__spec__", None)
    traceback = getattr(daemon, "traceback", None)
    if getattr(spec, "name", None) != "pyspark.daemon" or not isinstance(traceback, ModuleType):
        return
    if not isinstance(traceback, _QuietTraceback):
        setattr(daemon, "traceback", _QuietTraceback(traceback))  # noqa: B010


# --- secrets -------------------------------------------------------------------------------------


def warn_exposed_secrets(storage_options: Iterable[str]) -> None:
    """Warn, in a query's first task, of options that Spark shows and that may be secrets.

    Spark prints options in plans, in its UI and in event logs, except where `REDACTION_SETTING`
    matches their names. Settings of the session reach tasks, and no other process of this package.

    Args:
        storage_options: names of those for the file system, without their prefix.
    """
    context = TaskContext.get()
    if context is None or context.partitionId() != 0:
        return
    given = context.getLocalProperty(REDACTION_SETTING) or _SPARKS_REDACTION
    shown = exposed_secrets(storage_options, given)
    if shown:
        warnings.warn(
            f"Spark shows the values of {', '.join(shown)} in plans, in its UI and in event logs: "
            f"set {REDACTION_SETTING} to {REDACTION!r}, as conf/spark-defaults.conf does",
            ShownSecretWarning,
            stacklevel=2,
        )


def exposed_secrets(storage_options: Iterable[str], redaction: str) -> list[str]:
    """Return the options that may be secrets and that a session's redaction does not cover.

    Args:
        storage_options: names without their prefix.
        redaction: the session's `REDACTION_SETTING`: a regular expression of Java.
    """
    try:
        pattern = re.compile(redaction)
    except re.error:
        return []  # one that only Java understands
    names = (f"{STORAGE_PREFIX}{name}" for name in storage_options if _SECRETS.search(name))
    return sorted(name for name in names if not pattern.search(name))
