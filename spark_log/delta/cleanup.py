"""Freeing what a Delta table does not need any more: old versions, checkpoints and data files.

delta-rs and Spark decide this by the clock of the process that cleans up; one that is a day ahead
frees the names of versions that others have not seen yet. Here only the storage's time counts:
whoever calls gives the moment before which something is old, and what the storage says about when
files appeared is compared with it. Nothing here reads a clock.

A crash at any point leaves files that the next run frees.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from spark_log.clock import Clock
from spark_log.delta.delta_log import DeltaLog, LogListing
from spark_log.storage import FileInfo, Store

_LOG_FILE = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\..*parquet)")
_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 24 * 3_600_000_000,
    "week": 7 * 24 * 3_600_000_000,
}
_INTERVAL = re.compile(rf"(?:interval\s+)?(\d+)\s+({'|'.join(_UNITS_US)})s?", re.IGNORECASE)

_log = logging.getLogger(__name__)


def interval_us(text: str) -> int | None:
    """Return a table property such as ``interval 1 days`` in microseconds; None for another text.

    Names of versions and of data files are kept for an hour at the least: within half of it nobody
    has to look whether they were freed.
    """
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        return None
    return max(int(found[1]) * _UNITS_US[found[2].lower()], _free_delay_us())


def _free_delay_us() -> int:
    return int(DeltaLog.free_delay_ms * 1000)


def newest_version_before(listed: LogListing, before_us: int) -> int:
    """Return the newest version that appeared before a time, as did all before it; -1 for none.

    Where other programs have freed it nobody can tell when it appeared: then there is none either.
    """
    newer = [version for version, time_us in listed.versions.items() if time_us > before_us]
    last = min(newer) - 1 if newer else max(listed.versions, default=-1)
    return last if last in listed.versions else -1


def obsolete_names(files: Iterable[FileInfo], kept: int, before_us: int) -> list[str]:
    """Return the names of the log that may be freed, in the order in which they have to be.

    Args:
        files: a listing of the log.
        kept: the checkpoint that tells everything that versions before it told.
        before_us: only what appeared before that time, by the storage's clock.
    """
    found = [(match, file) for file in files if (match := _LOG_FILE.fullmatch(file.name))]
    spent = [
        (not file.name.endswith(".json"), int(match[1]), file.name)
        for match, file in found
        if int(match[1]) < kept and file.modified_us <= before_us
    ]
    return [name for _, _, name in sorted(spent)]


class DeltaCleanup:
    """Frees what one table does not need. Safe beside readers, writers, and others that free."""

    log_class: type[DeltaLog] = DeltaLog

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Touches nothing. Args: directory: the table's, relative to the store's root."""
        self._store = store
        self._directory = directory
        self._clock = clock

    def free_versions(self, before_us: int) -> int:
        """Free versions and checkpoints that appeared before a time and that no state needs.

        What is needed to read the table as it was at any time since then stays. From the oldest on:
        that the version before one is there tells everybody that nothing behind it was freed.

        Returns:
            How many files were deleted.

        Raises:
            StorageError: some were not deleted; the next run goes on.
        """
        log = self._log()
        listed = log.list_log()
        last = newest_version_before(listed, before_us)
        kept = log.checkpoint_before(listed, last)  # read, so that nothing hangs on a damaged one
        if kept is None:
            return 0
        names = obsolete_names(self._store.list(log.log_directory), kept, before_us)
        for name in names:
            self._store.delete(f"{log.log_directory}/{name}")
        return len(names)

    def free_data_files(self, before_us: int) -> int:
        """Free data files that no version since a time has named, or left in the table.

        A file that no version ever named is of a writer that lost a race or died. One that still
        writes names no file that it wrote more than half an hour ago, and none by a version that
        others have made meanwhile: so a version that is an hour younger than the file has to exist.
        (A writer that stood still for longer just before its version, while nobody else made one,
        may be early: its file is freed once it is old and compacted, and not a day later.)

        Returns:
            How many files were deleted.

        Raises:
            StorageError: some were not deleted; the next run goes on.
        """
        log = self._log()
        listed = log.list_log()
        last = newest_version_before(listed, before_us)
        then = log.state_at(last, listed) if last >= 0 else None
        if then is None:
            return 0
        log.refresh()
        needed = then.files.keys() | log.state.files.keys()
        old_us = min(before_us, max(listed.versions.values())) - _free_delay_us()
        unneeded = [
            file.name
            for file in self._store.list(self._directory)
            if file.name.endswith(".parquet")
            and file.modified_us <= old_us
            and file.name not in needed
        ]
        for name in unneeded:
            self._store.delete(f"{self._directory}/{name}")
        return len(unneeded)

    def _log(self) -> DeltaLog:
        return self.log_class(self._store, self._directory, self._clock)
