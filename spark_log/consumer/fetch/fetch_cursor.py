"""State of one assigned partition in the fetcher."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from spark_log.consumer.fetch.completed_fetch import CompletedFetch
from spark_log.log import LogBatch, PartitionLog
from spark_log.types import TopicPartition


class FetchCursor:
    """The fetch position of one partition, and its batches that are not handed out yet.

    The fetcher's lock guards every field except ``log`` and ``stream``, which only the fetching
    thread uses.

    Attributes:
        partition: the partition.
        log: the log handle, which belongs to the fetching thread.
        offset: the next offset to fetch.
        end_offset: the last known offset up to which the partition can be read: the log end offset,
            or with ``read_committed`` the last stable offset; -1 before the first read.
        version: a number that each seek and each new log handle increments. A read that began for
            an older version is dropped.
        stream: an iterator of the batches from ``offset`` on, and the version that it belongs to.
        completed: the fetched batches in offset order.
        completed_bytes: the sum of their sizes.
        held_bytes: the approximate memory that they hold.
        error: a permanent failure to read; reported after ``completed`` is empty. A seek clears it.
        failures: the number of transient failures in a row.
        due_ms: the monotonic time of the next read at the log's end; 0 if more can be read now.
        records_ms: the monotonic time of the newest records, or of the beginning.
        is_at_rest: whether the partition is read less often, because no records arrive.
        is_assigned: whether the fetcher reads the partition.
        is_at_end: whether the last read found no more records.
        is_paused: whether the partition is neither fetched nor handed out; ``completed`` is kept.
        is_ready: whether the partition is in the buffer's queue.
        is_queued: whether the partition is in the fetching thread's queue.
        gives_hints: whether the operating system reports changes of the partition's directory.
    """

    __slots__ = (
        "completed",
        "completed_bytes",
        "due_ms",
        "end_offset",
        "error",
        "failures",
        "gives_hints",
        "held_bytes",
        "is_assigned",
        "is_at_end",
        "is_at_rest",
        "is_paused",
        "is_queued",
        "is_ready",
        "log",
        "offset",
        "partition",
        "records_ms",
        "stream",
        "version",
    )

    def __init__(self, partition: TopicPartition, log: PartitionLog, offset: int) -> None:
        """Begin at an offset. Reads nothing yet."""
        self.partition = partition
        self.log = log
        self.offset = offset
        self.end_offset = -1
        self.version = 0
        self.stream: tuple[int, Iterator[tuple[LogBatch | None, int]]] | None = None
        self.completed: deque[CompletedFetch] = deque()
        self.completed_bytes = self.held_bytes = 0
        self.error: Exception | None = None
        self.failures = 0
        self.due_ms = 0.0
        self.records_ms = 0.0
        self.is_assigned = True
        self.is_at_end = False
        self.is_at_rest = False
        self.is_paused = False
        self.is_ready = False
        self.is_queued = False
        self.gives_hints = False

    def seek(self, offset: int) -> None:
        """Drop the fetched batches and continue at ``offset``."""
        self.completed_bytes = self.held_bytes = 0
        self.completed.clear()
        self.offset = offset
        self.version += 1
        self.error = None
        self.due_ms = 0.0
        self.is_at_end = False
        self.is_at_rest = False
        self.failures = 0
