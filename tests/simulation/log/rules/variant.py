"""The classes of the log that one simulation uses: the shipped ones, or unsafe ones."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log import LocalLog
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.files.file_names import SegmentName
from spark_log.storage import FileInfo
from tests.simulation.log.maintenance import Cleaner, Merger, Retention
from tests.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class Variant:
    """The classes that one simulation uses.

    Attributes:
        log: the partition log that all actors use.
        merger: the actor that merges segments.
        retention: the actor that moves the log start.
        cleaner: the actor that merges, applies retention and deletes files.
        patches: functions that are replaced during the simulation.
    """

    log: type[LocalLog] = LocalLog
    merger: type[Merger] = Merger
    retention: type[Retention] = Retention
    cleaner: type[Cleaner] = Cleaner
    patches: tuple[Patch, ...] = ()


SOUND = Variant()
"""The shipped classes."""


def appending(appender: type[Appender]) -> Variant:
    """Return the variant whose logs use another appender."""

    class Log(LocalLog):
        appender_class = appender

    return Variant(log=Log)


def knowing(tail: type[AppenderState]) -> Variant:
    """Return the variant whose appenders keep another state of the log's end."""

    class Knowing(Appender):
        state_class = tail

    return appending(Knowing)


def plain_name(file: FileInfo) -> SegmentName | None:
    """Return the name of a plain segment; None for any other file."""
    name = SegmentName.parse(file.name)
    return None if name is None or name.generation else name
