"""The end of a log as an appender knows it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files import SegmentName, StartMarker


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A log end offset, and the time when no segment had its name.

    Attributes:
        log_end_offset: the offset after the log's last record.
        observed_ms: monotonic time when it was known that no segment had this offset as its name.
        last: the name of the last segment; None in a log without segments.
        leader_epoch: the leader epoch of the last batch; -1 in a log that never had a batch, None
            if it is not known.
    """

    log_end_offset: int
    observed_ms: float
    last: SegmentName | None = None
    leader_epoch: int | None = None


def is_last_gone(directory: PartitionDirectory, end: LogEnd) -> bool:
    """Return whether the log's last segment does not exist any more; False on an object store.

    A segment that was part of the log so recently cannot have been deleted by a cleaner: the log
    was removed, and a put would begin a new one. In a log whose records were all deleted, the start
    marker is checked instead.

    Args:
        directory: the partition's directory.
        end: the log's end, observed recently.
    """
    if end.last is not None:
        name = end.last.file_name
    elif end.log_end_offset:
        name = StartMarker(end.log_end_offset, end.log_end_offset).name
    else:
        return False
    return directory.store.is_gone(directory.file_path(name))
