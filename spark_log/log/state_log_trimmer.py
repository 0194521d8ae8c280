"""Keeps the log of a state short: only its newest record is needed.

On storage: the log start moves to the newest record by a ``.start`` marker. Segments before it,
older markers and snapshots are deleted when they have been obsolete for ``file.delete.delay.ms``. A
crash at any point leaves a log with the same content, and files that a later trim deletes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS
from spark_log.errors import ClockSkewError, SparkLogError
from spark_log.log.files import StartMarker, parse_snapshot_name, spent_segments
from spark_log.log.local_log import LocalLog
from spark_log.log.log_start import move_log_start
from spark_log.storage import FileInfo, check_clock_skew, newest_modified_us, storage_time_us
from spark_log.util import Clock

_TRIMS_PER_DELAY = 8
"""Maximum number of times that one process trims a log within ``file.delete.delay.ms``. Files are
deleted after that time, so a busy log has many; listing them after each 64 records took half of the
time of a transaction."""

_SNAPSHOTS_KEPT = 2

_log = logging.getLogger(__name__)


class StateLogTrimmer:
    """Trims one log, for one process and one thread at a time.

    Attributes:
        max_clock_skew_ms: ``max.clock.skew.ms`` of the cluster.
    """

    def __init__(self, log: LocalLog, clock: Clock, trim_every: int) -> None:
        """Return the trimmer of a log; nothing is read yet.

        Args:
            log: the log.
            clock: the clock of this process.
            trim_every: the number of records after which the log is trimmed, but at most
                `_TRIMS_PER_DELAY` times within ``file.delete.delay.ms``: a trim lists the log. The
                listing returns the files of this many records, and the files of little more than
                the last ``file.delete.delay.ms``.
        """
        self.max_clock_skew_ms = DEFAULT_MAX_CLOCK_SKEW_MS
        self._log = log
        self._clock = clock
        self._trim_every = trim_every
        self._trimmed_ms = -math.inf
        self._skew_was_logged = False

    def trim_if_due(self, log_end_offset: int) -> None:
        """Trim the log after an append up to this offset, if that is due; log a failure."""
        now_ms = self._clock.monotonic_ms()
        between_ms = self._log.config.file_delete_delay_ms / _TRIMS_PER_DELAY
        if log_end_offset % self._trim_every or now_ms - self._trimmed_ms < between_ms:
            return
        self._trimmed_ms = now_ms
        directory = self._log.directory
        try:
            self.trim()
            self._skew_was_logged = False
        except ClockSkewError as error:
            if not self._skew_was_logged:
                _log.warning("%s: not trimmed by this process: %s", directory, error)
            self._skew_was_logged = True
        except SparkLogError as error:
            _log.warning("%s: not trimmed, trying again later: %s", directory, error)

    def trim(self) -> None:
        """Move the log start to the newest record, and delete files that were obsolete long enough.

        Ages are measured by the storage's time. It is read from the newest file, a change or the
        start marker, which was created just before.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing was deleted.
            StorageError: the start was not moved, or files were not deleted; both are harmless.
        """
        directory, store = self._log.directory, self._log.files.store
        start_offset = move_log_start(self._log, self._newest_offset())
        files = list(store.list(directory))
        before_us = self._storage_time_us(files) - self._log.config.file_delete_delay_ms * 1000
        present = {file.name for file in files}
        obsolete = [name for name in _obsolete_names(files, before_us) if name in present]
        for name in obsolete:
            store.delete(f"{directory}/{name}")
        _log.debug(
            "%s: trimmed to offset %d, %d files deleted", directory, start_offset, len(obsolete)
        )

    def _newest_offset(self) -> int:
        view = self._log.observe()
        return view.live.segments[-1].start_offset if view.live.segments else view.log_end_offset

    def _storage_time_us(self, files: Sequence[FileInfo]) -> int:
        """Return the storage's time, from the newest file in a listing.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
        """
        now_us = newest_modified_us(files)
        try:
            check_clock_skew(self._clock, now_us, self.max_clock_skew_ms)
        except ClockSkewError:  # possibly this process was paused after its append
            now_us = storage_time_us(self._log.files.store, self._log.directory)
            check_clock_skew(self._clock, now_us, self.max_clock_skew_ms)
        return now_us


def _obsolete_names(files: Sequence[FileInfo], before_us: int) -> Iterator[str]:
    """Yield the names of files that were obsolete at a time; some of them may not exist."""
    for segment in spent_segments(files, before_us):
        yield from (segment.file_name, *segment.index_names)
    markers = [(file, marker) for file in files if (marker := StartMarker.parse(file.name))]
    old = [marker for file, marker in markers if file.modified_us <= before_us]
    highest = max((marker.log_start_offset for marker in old), default=0)
    yield from (marker.name for _, marker in markers if marker.log_start_offset < highest)
    snapshots = [file.name for file in files if parse_snapshot_name(file.name) is not None]
    yield from snapshots[:-_SNAPSHOTS_KEPT]
