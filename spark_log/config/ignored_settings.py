"""Warns about settings that a program passes for Kafka and that have no effect here."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from spark_log.errors import IgnoredOptionWarning

_report: ContextVar[Callable[[str], None] | None] = ContextVar("report", default=None)

_PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep


def warn_ignored_settings(where: str, names: Iterable[str], instead: str = "") -> None:
    """Warn that settings have no effect, if there are any.

    Args:
        where: what ignores them, such as ``format spark_log``.
        names: the settings, as the user wrote them.
        instead: what has an effect in their place, if anything has.
    """
    if listed := ", ".join(names):
        warn_of_setting(f"{where} ignores {listed}{instead and ': '}{instead}")


def warn_of_setting(sentence: str) -> None:
    """Warn about a setting that has no effect, or not the effect that it names.

    The warning names the line of the program that calls this package, so Python shows it once for
    each such line. After `report_ignored_settings` nothing is shown.
    """
    if (report := _report.get()) is not None:
        report(sentence)
        return
    warnings.warn(sentence, IgnoredOptionWarning, stacklevel=_level_of_caller())


def report_ignored_settings(report: Callable[[str], None]) -> None:
    """Call a function instead of each warning, from now on in this thread or task.

    For a server, in which no line of a program is the reason.
    """
    _report.set(report)


def _level_of_caller() -> int:
    """Return the ``stacklevel`` of the nearest frame that is outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
