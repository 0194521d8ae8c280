"""One assigned partition as the fetcher sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from spark_log.consumer.completed_fetch import CompletedFetch
from spark_log.log import LogBatch, PartitionLog
from spark_log.types import TopicPartition


class FetchCursor:
    """How far a partition was fetched, and what of it waits to be handed out.

    The fetcher's lock guards all of it but ``log`` and ``stream``, which the fetching thread alone
    uses.

    Attributes:
        partition: which.
        log: a handle of the fetching thread's own.
        is_at_end: there was nothing more at the last look.
        is_paused: nothing is fetched or handed out; what was fetched is kept.
        offset: the next one to be fetched.
        version: raised by a seek: what was under way for the version before it is dropped.
        waiting: fetched, in order.
        waiting_bytes: of all of them.
        error: what ended the fetching; given out behind what is waiting. A seek clears it.
        due_ms: when to look for more at the log's end; 0: there is more now.
        end_offset: the log's end as it was seen last; -1 before.
        gives_hints: the directory is watched.
        is_ready: it has its place among those to be handed out.
        is_queued: it has its place in the queue of those to be fetched from.
        failures: transient ones in a row.
        stream: batches from ``offset`` on, and for which version.
    """

    __slots__ = (
        "due_ms",
        "end_offset",
        "error",
        "failures",
        "gives_hints",
        "is_at_end",
        "is_paused",
        "is_queued",
        "is_ready",
        "log",
        "offset",
        "partition",
        "stream",
        "version",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, partition: TopicPartition, log: PartitionLog, offset: int) -> None:
        self.partition = partition
        self.log = log
        self.is_at_end = False
        self.is_paused = False
        self.offset = offset
        self.version = 0
        self.waiting: deque[CompletedFetch] = deque()
        self.waiting_bytes = 0
        self.error: Exception | None = None
        self.due_ms = 0.0
        self.end_offset = -1
        self.gives_hints = False
        self.is_queued = False
        self.is_ready = False
        self.failures = 0
        self.stream: tuple[int, Iterator[tuple[LogBatch | None, int]]] | None = None

    def seek(self, offset: int) -> int:
        """Begin anew at an offset; returns how many bytes are let go."""
        freed, self.waiting_bytes = self.waiting_bytes, 0
        self.waiting.clear()
        self.offset = offset
        self.version += 1
        self.error = None
        self.due_ms = 0.0
        self.is_at_end = False
        self.failures = 0
        return freed
