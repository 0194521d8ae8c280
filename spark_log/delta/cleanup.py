"""Deletes files that a Delta table no longer needs: versions, checkpoints and data files.

delta-rs and Spark decide by the clock of the process that cleans up. A process whose clock is a day
ahead would delete versions that other processes have not read yet. This module only uses the
storage's time: the caller passes a time before which files are old, and it is compared with the
storage's last-modified times. This module reads no clock.

A crash at any point leaves files that the next run deletes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.state import LogListing
from spark_log.storage import FileInfo, Store
from spark_log.util import Clock

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
    """Return a table property such as ``interval 1 days`` in microseconds; None if it is malformed.

    The result is at least one hour: a process may rely for half of this time on the names that it
    has read.
    """
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        return None
    return max(int(found[1]) * _UNITS_US[found[2].lower()], _deletion_delay_us())


class DeltaCleanup:
    """Deletes the unneeded files of one table.

    It may run at the same time as readers, writers, and other processes that clean up.
    """

    log_class: type[DeltaLog] = DeltaLog

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Return the cleanup of a table; nothing is read yet.

        Args:
            store: the store of the table.
            directory: the table's directory, relative to the store's root.
            clock: the clock of the table's log.
        """
        self._store = store
        self._directory = directory
        self._clock = clock

    def delete_versions(self, before_us: int) -> int:
        """Delete versions and checkpoints that are older than a time and that no state needs.

        Files that are needed to read the table's state at any later time stay. The oldest version
        is deleted first: if a version exists, no version after it was deleted.

        Returns:
            The number of deleted files.

        Raises:
            StorageError: some files were not deleted; the next run continues.
        """
        log = self._log()
        listed = log.list_log()
        last = _newest_version_before(listed, before_us)
        kept = log.checkpoint_before(listed, last)  # reads the checkpoint: it may be damaged
        if kept is None:
            return 0
        files = self._store.list(log.log_directory)
        return self._delete(log.log_directory, _obsolete_names(files, kept, before_us))

    def delete_data_files(self, before_us: int) -> int:
        """Delete data files that were in no version of the table since a time.

        A file that no version ever added belongs to a writer that lost a race or died. A live
        writer never adds a file that it wrote more than half an hour ago, and its commit fails if
        others have made the same version meanwhile. A file without a version is deleted only
        after a version exists that is at least an hour younger than the file. (Exception: a writer
        is paused for longer just before its commit, and no other process commits meanwhile. Then
        its file is deleted as soon as it has been compacted, not a day later.)

        Returns:
            The number of deleted files.

        Raises:
            StorageError: some files were not deleted; the next run continues.
        """
        log = self._log()
        listed = log.list_log()
        last = _newest_version_before(listed, before_us)
        then = log.state_at(last, listed) if last >= 0 else None
        if then is None:
            return 0
        log.refresh()
        needed = then.files.keys() | log.state.files.keys()
        old_us = min(before_us, max(listed.versions.values())) - _deletion_delay_us()
        unneeded = [
            file.name
            for file in self._store.list(self._directory)
            if file.name.endswith(".parquet")
            and file.modified_us <= old_us
            and file.name not in needed
        ]
        return self._delete(self._directory, unneeded)

    def _delete(self, directory: str, names: list[str]) -> int:
        for name in names:
            self._store.delete(f"{directory}/{name}")
        if names:
            _log.debug("%s: deleted %d files that no state needs", directory, len(names))
        return len(names)

    def _log(self) -> DeltaLog:
        return self.log_class(self._store, self._directory, self._clock)


def _deletion_delay_us() -> int:
    return int(DeltaLog.deletion_delay_ms * 1000)


def _newest_version_before(listed: LogListing, before_us: int) -> int:
    """Return the newest version that, like all versions before it, is not newer than a time.

    The result is -1 without such a version, or if another program has deleted it: then its time is
    not known.
    """
    newer = [version for version, time_us in listed.versions.items() if time_us > before_us]
    last = min(newer) - 1 if newer else max(listed.versions, default=-1)
    return last if last in listed.versions else -1


def _obsolete_names(files: Iterable[FileInfo], kept: int, before_us: int) -> list[str]:
    """Return the names in the log that may be deleted, in the order of deletion.

    Args:
        files: a listing of the log.
        kept: the version of a checkpoint that replaces all versions before it.
        before_us: the time, by the storage's clock, after which no returned file was modified.
    """
    matches = [(match, file) for file in files if (match := _LOG_FILE.fullmatch(file.name))]
    obsolete = [
        (not file.name.endswith(".json"), int(match[1]), file.name)
        for match, file in matches
        if int(match[1]) < kept and file.modified_us <= before_us
    ]
    return [name for _, _, name in sorted(obsolete)]
