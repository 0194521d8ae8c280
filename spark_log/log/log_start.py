"""Moving a log's start: what delete-records and retention do first (DESIGN.md, section 6).

On storage: a ``.start`` marker, made by put-if-absent; the highest one counts, so that the start
never goes back, whoever moves it at once. Before it comes a snapshot: once the start has passed
their headers, nothing else tells of idempotent producers. A crash between the two leaves a snapshot
more, and the log as it was. Files before the start are freed later, by a cleaner.
"""

from __future__ import annotations

from contextlib import suppress

from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.log.file_names import StartMarker
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog


def move_log_start(log: PartitionLog, offset: int) -> int:
    """Let a log begin at an offset, unless it begins later already.

    May be repeated, after any error too; any number may do it at once, beside writers, readers and
    mergers. Who listed the log before may go on reading for half of ``file.delete.delay.ms``.

    Args:
        log: the partition's.
        offset: of the first record that is kept; the log end offset keeps none.

    Returns:
        The offset at which the log begins now.

    Raises:
        OffsetOutOfRangeError: it lies behind the log's end; with the valid range.
        CorruptRecordError: what lies around the offset is damaged or missing.
        UnknownOutcomeError: whether the start was moved could not be found out.
        StorageError: the start was not moved.
    """
    view = log.observe()
    if offset <= view.log_start_offset:
        return view.log_start_offset
    view.check_offset(offset, log.directory)
    marker = StartMarker(offset, _segment_base(log, view, offset))
    log.write_snapshot()
    path = log.files.file_path(marker.name)
    try:
        log.files.store.put_if_absent(path, b"")
    except AlreadyExistsError:  # another one has moved it to the same place
        with suppress(NotFoundError):  # and somebody further since
            log.files.store.sync(path)
    return max(offset, log.log_start_offset())


def _segment_base(log: PartitionLog, view: LogView, offset: int) -> int:
    """Return the base of the segment that an offset lies in; at the log's end, the next one's."""
    # Not by the view alone: a listing may leave out a segment that came during it, and then shows
    # the one before it as longer than it is. To walk there opens the segment, which knows its end.
    for _, segment, _ in log.files.walk(view, offset, offset + 1):
        return segment.name.base_offset
    return offset
