"""Errors, warnings, broken pipes and garbage collection in the Python processes of Spark."""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from pyspark import TaskContext

from spark_log.errors import SparkLogError
from spark_log.util import set_log_level

if TYPE_CHECKING:
    from spark_log.datasource.options import ReadOptions, WriteOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")

REDACTION_SETTING: Final = "spark.redaction.regex"
REDACTION: Final = "(?i)secret|password|token|access[.]?key|(^|[.])storage[.]"
"""Spark's default pattern, and all options of file systems (``storage.``,
``brokers.<id>.storage.``), which Spark would show otherwise.
"""

_SPARKS_REDACTION: Final = "(?i)secret|password|token|access[.]?key"
_SECRETS: Final = re.compile(
    r"(?i)key|secret|token|pass|connection_string|credential|sas|signature"
)


class ShownSecretWarning(UserWarning):
    """Spark shows the value of an option that may be a secret."""


# --- errors --------------------------------------------------------------------------------------


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Make Spark report an error of this package by its message alone, without a traceback.

    Spark's worker sends the text of an error to the JVM, and the JVM repeats it for each attempt of
    a task, for the stage and for the job. The environment variable ``SPARK_HIDE_TRACEBACK``, which
    the worker reads at that moment, leaves the traceback out. The process ends with the error, so
    the variable affects nothing else.
    """
    try:
        yield
    except SparkLogError:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _is_worker() -> bool:
    return os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"


def without_traceback(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a method that Spark calls with `hide_traceback`; it ends with `freeze_modules`."""

    @wraps(method)
    def calling(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            with hide_traceback():
                return method(*args, **kwargs)
        finally:
            freeze_modules()

    return calling


# --- the end of a read ---------------------------------------------------------------------------


class _QuietTraceback(ModuleType):
    """The module ``traceback`` for ``pyspark.daemon``: it does not print broken pipes."""

    def __init__(self, traceback: ModuleType) -> None:
        super().__init__(traceback.__name__)
        self._traceback = traceback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traceback, name)

    def print_exc(self, *args: Any, **kwargs: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            self._traceback.print_exc(*args, **kwargs)


def silence_broken_pipe() -> None:
    """Prevent a traceback when Spark closes its pipe to this process.

    ``show()``, ``limit`` and ``take`` close the pipe before the task has written everything, and so
    does Spark when a query is stopped or a session ends. This is not an error, and Java, which
    closed the pipe, knows of it. But ``pyspark.daemon`` prints a traceback (Spark 4.2.0, with any
    source in Python).
    """
    daemon = sys.modules.get("__main__")
    spec = getattr(daemon, "__spec__", None)
    traceback = getattr(daemon, "traceback", None)
    if getattr(spec, "name", None) != "pyspark.daemon" or not isinstance(traceback, ModuleType):
        return
    if not isinstance(traceback, _QuietTraceback):
        setattr(daemon, "traceback", _QuietTraceback(traceback))  # noqa: B010


def enter_worker() -> None:
    """Prepare a Python process of Spark for code of this package."""
    set_log_level()
    silence_broken_pipe()
    freeze_modules()


# --- the time between two tasks -----------------------------------------------------------------

_frozen_modules = 0


def freeze_modules() -> None:
    """Exempt this process's objects from garbage collection if it has imported since the last time.

    After every task, and after every step of planning, ``pyspark.daemon`` runs a full collection
    before the process takes the next one (Spark 4.2.0). It visits 100,000 objects of imported
    modules, which takes 50 ms, and frees nothing (ADR 38). A step imports at its beginning, and
    some modules only when it needs them, so this is called at both its ends. Frozen objects are
    still freed when their last reference goes. Only cycles among them stay in memory: as often as
    modules are imported, not for each task.
    """
    global _frozen_modules  # noqa: PLW0603 - of the process, as what it freezes
    if len(sys.modules) != _frozen_modules and _is_worker():
        _frozen_modules = len(sys.modules)
        gc.freeze()


# This module is imported first. Imports set off collections, which would visit the objects of all
# that pyspark has imported: a sixth of the processor time of a process's first call (ADR 74).
freeze_modules()


# --- secrets -------------------------------------------------------------------------------------


def warn_exposed_secrets(options: ReadOptions | WriteOptions) -> None:
    """Warn, in the first task of a query, about options that may be secrets and that Spark shows.

    Spark prints options in plans, in its UI and in event logs, except options whose names match the
    session's `REDACTION_SETTING`. Session settings reach only the tasks, and no other process of
    this package; therefore a task warns.

    Args:
        options: the query's options.
    """
    context = TaskContext.get()
    if context is None or context.partitionId() != 0:
        return
    from spark_log.config import to_keys
    from spark_log.datasource.options import STORAGE_PREFIX

    redaction = context.getLocalProperty(REDACTION_SETTING) or _SPARKS_REDACTION
    names = [f"{STORAGE_PREFIX}{name}" for name in options.storage_options]
    exposed = exposed_secrets([*names, *to_keys(options.broker_options)], redaction)
    if exposed:
        warnings.warn(
            f"Spark shows the values of {', '.join(exposed)} in plans, in its UI and in event "
            f"logs: set {REDACTION_SETTING} to {REDACTION!r}, as conf/spark-defaults.conf does",
            ShownSecretWarning,
            stacklevel=2,
        )


def exposed_secrets(names: Iterable[str], redaction: str) -> list[str]:
    """Return the options that may be secrets and that the session's redaction does not cover.

    Args:
        names: names of options of file systems, with their prefixes.
        redaction: the session's `REDACTION_SETTING`, a Java regular expression. If Python cannot
            parse it, the result is empty.
    """
    try:
        pattern = re.compile(redaction)
    except re.error:
        return []  # valid in Java only
    secret = (name for name in names if _SECRETS.search(name.rpartition("storage.")[2]))
    return sorted(name for name in secret if not pattern.search(name))
