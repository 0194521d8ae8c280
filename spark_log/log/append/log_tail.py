"""The end of a log as an appender knows it, and the outcome of a put there."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log.file_names import SegmentName, StartMarker
from spark_log.log.partition_directory import PartitionDirectory
from spark_log.log.segment import SegmentReader


@dataclass(frozen=True, slots=True)
class LogTail:
    """A log end offset, and when it was known that no segment had its name.

    Attributes:
        log_end_offset: of the log.
        observed_ms: monotonic time.
        last: the segment that ends there; None in a log without segments.
        leader_epoch: of the last batch; -1 in a log that never had one, None if it is not known.
    """

    log_end_offset: int
    observed_ms: float
    last: SegmentName | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """The segment at an offset after a put there.

    Attributes:
        is_ours: whether it is the segment that was put.
        end_offset: the offset after its last.
        winner: reader of the segment, which was there before; None if the put succeeded.
    """

    is_ours: bool
    end_offset: int
    winner: SegmentReader | None


def is_last_gone(directory: PartitionDirectory, tail: LogTail) -> bool:
    """Whether the log's last segment does not exist any more; False on an object store.

    A segment that was part of the log so recently cannot have been deleted by a cleaner. A put
    behind it would append to a log that was removed. A log whose records were all deleted has a
    start marker instead.

    Args:
        directory: of the partition.
        tail: of the log, and recent.
    """
    if tail.last is not None:
        name = tail.last.log
    elif tail.log_end_offset:
        name = StartMarker(tail.log_end_offset, tail.log_end_offset).name
    else:
        return False
    return directory.store.is_gone(directory.file_path(name))
