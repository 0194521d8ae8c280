"""Moving the log start offset: the first step of delete-records and retention (protocol L2, W7).

On storage: a ``.start`` marker, created by put-if-absent. The highest marker counts, so the start
never goes back, no matter how many processes move it at once. The marker contains the leader epoch
of the last batch before the start, since this batch's segment may be deleted. A snapshot is written
before the marker: when the batch headers before the start are gone, only the snapshot holds the
state of their idempotent producers. A crash between the two leaves one more snapshot, and the log
is unchanged. A cleaner deletes the files before the start later.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from spark_log.errors import AlreadyExistsError, NotFoundError, OffsetOutOfRangeError
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import StartMarker, encode_leader_epoch
from spark_log.log.local_log import LocalLog
from spark_log.log.snapshot import Snapshot

_log = logging.getLogger(__name__)


def move_log_start(log: LocalLog, offset: int, view: LogView | None = None) -> int:
    """Move the log start offset to ``offset``, unless it is this offset or a higher one already.

    The call may be repeated, also after an error. Any number of processes may call it at once,
    beside writers, readers and mergers. A reader that listed the log before may continue to read
    the deleted records for half of ``file.delete.delay.ms``.

    Args:
        log: the log whose start is moved.
        offset: offset of the first record to keep. The log end offset deletes all records.
        view: a view of all of the log, made a moment ago; None lists the log.

    Returns:
        The log start offset after the call.

    Raises:
        OffsetOutOfRangeError: ``offset`` is greater than the log end offset; has the valid range.
        CorruptRecordError: the segment at ``offset`` is damaged or missing.
        UnknownOutcomeError: it could not be determined whether the start was moved.
        StorageError: the start was not moved.
    """
    files = log.files
    if view is None or files.is_outdated(view.observed_ms):
        view = files.observe()
    if offset <= view.log_start_offset:
        return view.log_start_offset
    view.check_offset(offset, files.path)
    snapshot = log.snapshots.write(view)
    marker = StartMarker(offset, _segment_base(files, view, offset, snapshot))
    path = files.file_path(marker.name)
    epoch = _epoch_before(log, view, offset)
    content = b"" if epoch is None else encode_leader_epoch(epoch)
    try:
        files.store.put_if_absent(path, content)
    except AlreadyExistsError:  # another process has moved the start to the same offset
        with suppress(NotFoundError):  # and then another one has moved it further
            files.store.sync(path)
    _log.debug("%s: moved the log start from %d to %d", files.path, view.log_start_offset, offset)
    return max(offset, files.observe().log_start_offset)


def follow_log_start(log: LocalLog, offset: int) -> int:
    """Move the log start offset of one replica to the partition's log start offset.

    Args:
        log: the replica, which had the records up to the offset when it was listed.
        offset: offset of the first record to keep.

    Returns:
        The log start offset of the replica after the call.

    Raises:
        LogTruncatedError: the replica's log ends before the offset, since its root was emptied.
        CorruptRecordError: the segment at the offset is damaged or missing.
        UnknownOutcomeError: it could not be determined whether the start was moved.
        StorageError: the start was not moved.
    """
    try:
        return move_log_start(log, offset)
    except OffsetOutOfRangeError as error:
        if error.log_start_offset >= offset:  # another process has moved it further
            return error.log_start_offset
        raise log.files.truncated(error.log_end_offset, offset) from error


def _segment_base(files: PartitionDirectory, view: LogView, offset: int, snapshot: Snapshot) -> int:
    """Return the base offset of the segment that contains ``offset``, or of the next segment."""
    for summary in snapshot.segments:
        if summary.name.base_offset <= offset < summary.end_offset:
            return summary.name.base_offset
    # The view alone is not enough: a listing may leave out a segment that appeared during it, and
    # then shows the segment before it as too long. `walk` opens the segment and reads its end.
    for _, segment, _ in files.walk(view, offset, offset + 1):
        return segment.name.base_offset
    return offset


def _epoch_before(log: LocalLog, view: LogView, offset: int) -> int | None:
    """Return the leader epoch of the last batch before an offset; None if it is not known."""
    try:
        last = log.leader_epochs.latest(view)
        if not last or offset == view.log_end_offset:
            return last  # epochs never go back: if the last one is 0, all are
        return log.leader_epochs.epoch_for_offset(offset - 1, view)
    except (NotFoundError, OffsetOutOfRangeError):  # rewritten or deleted since
        return None
