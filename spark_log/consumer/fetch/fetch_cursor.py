"""State of one assigned partition in the fetcher."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_log.consumer.fetch.completed_fetch import BatchSlice, CompletedFetch
from spark_log.log import LogBatch, PartitionLog
from spark_log.types import TopicPartition

if TYPE_CHECKING:
    from spark_log.log.stripe import StripeReader

Batches = Iterator[tuple[LogBatch | None, int]]
"""Batches of a log, each with the offset after it; None for a batch that is not visible."""


@dataclass(slots=True, eq=False)
class FetchCursor:
    """The fetch position of one partition, and its batches that are not handed out yet.

    Others read the fields; the methods change them, while the fetcher's lock is held. Only the
    thread that reads the partition uses ``log`` and the stream, without the lock. The marks
    ``is_queued``, ``is_read``, ``is_beside`` and ``gives_hints`` belong to the `FetchLoop`, and
    ``is_ready`` to the `FetchBuffer`.

    Attributes:
        partition: the partition.
        log: the log handle, which belongs to the thread that reads the partition.
        offset: the next offset to fetch.
        end_offset: the last known offset up to which the partition can be read: the log end offset,
            or with ``read_committed`` the last stable offset; -1 before the first read.
        version: a number that each seek and each new log handle increments. A read that began for
            an older version is dropped.
        completed: the fetched batches in offset order.
        rows_left: the number of their rows that are not handed out yet.
        completed_bytes: the sum of their sizes.
        held_bytes: the approximate memory that they hold.
        error: a permanent failure to read; reported after ``completed`` is empty. A seek clears it.
        failures: the number of transient failures in a row.
        due_ms: the monotonic time of the next read at the log's end; 0 if more can be read now.
        records_ms: the monotonic time of the newest records, or of the assignment.
        is_assigned: whether the fetcher reads the partition.
        is_paused: whether the partition is neither fetched nor handed out; ``completed`` is kept.
        is_at_end: whether the last read found no more records.
        is_at_rest: whether the partition is read less often, because no records arrive.
        is_queued: whether the partition is in a queue of the fetching thread.
        is_read: whether a turn of the partition is under way; it is queued when the turn ends.
        is_beside: whether this turn is on another thread than the fetching thread.
        gives_hints: whether the operating system reports changes of the partition's directory.
        is_ready: whether the partition is in the buffer's queue.
        stripe: what the process has read of the partition's stripe, which the `FetchLoop` polls;
            None if the partition has a log of its own.
        seen_end: the end in the stripe that the last read at the log's end has seen.
        until_number: the number of the object of the stripe before which this turn ends; None if
            the turn was not given for some objects.
    """

    partition: TopicPartition
    log: PartitionLog
    offset: int
    end_offset: int = -1
    version: int = 0
    completed: deque[CompletedFetch] = field(default_factory=deque)
    rows_left: int = 0
    completed_bytes: int = 0
    held_bytes: int = 0
    error: Exception | None = None
    failures: int = 0
    due_ms: float = 0.0
    records_ms: float = 0.0
    is_assigned: bool = True
    is_paused: bool = False
    is_at_end: bool = False
    is_at_rest: bool = False
    is_queued: bool = False
    is_read: bool = False
    is_beside: bool = False
    gives_hints: bool = False
    is_ready: bool = False
    stripe: StripeReader | None = field(init=False)
    seen_end: int = 0
    until_number: int | None = None
    _stream: tuple[int, Batches] | None = None

    def __post_init__(self) -> None:
        self.stripe = self.log.leave_polls()

    # --- calls of the user -----------------------------------------------------------------------

    def assign(self, now_ms: float) -> None:
        """Begin to wait for records."""
        self.records_ms = now_ms

    def unassign(self) -> None:
        """Stop reading, also while the partition is queued."""
        self.is_assigned = False

    def use_log(self, log: PartitionLog) -> None:
        """Continue with another handle; a read that began with the old one is repeated."""
        self.log = log
        self.stripe = log.leave_polls()
        self.version += 1

    def seek(self, offset: int) -> None:
        """Drop the fetched batches and continue at ``offset``."""
        self.rows_left = self.completed_bytes = self.held_bytes = 0
        self.completed.clear()
        self.offset = offset
        self.version += 1
        self.error = None
        self.due_ms = 0.0
        self.is_at_end = False
        self.is_at_rest = False
        self.failures = 0

    def pause(self) -> None:
        """Neither fetch nor hand out the partition until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Undo `pause`."""
        self.is_paused = False

    # --- batches ---------------------------------------------------------------------------------

    def extend(self, fetched: Iterable[CompletedFetch]) -> bool:
        """Add batches that continue at ``offset``, and advance it.

        Returns:
            Whether anything was added: an empty read at the end of a segment is skipped.
        """
        is_added = False
        for each in fetched:
            if each.batch is None and each.next_offset == self.offset:
                continue  # the end of a segment
            is_added = True
            self.offset = each.next_offset
            last = self.completed[-1] if self.completed else None
            if last is not None and last.batch is None and each.batch is None:
                last.next_offset = each.next_offset  # many such batches take the memory of one
                continue
            self.completed.append(each)
            self.rows_left += each.rows_left
            self.completed_bytes += each.size_bytes
            self.held_bytes += each.memory_bytes
        return is_added

    def take(self, max_rows: int) -> BatchSlice:
        """Hand out rows of the first batch, which has at least one that is left."""
        taken = self.completed[0].take(max_rows)
        self.rows_left -= taken.count
        return taken

    def drop_first(self) -> CompletedFetch:
        """Remove the first batch and return it. All of its rows were handed out."""
        batch = self.completed.popleft()
        self.completed_bytes -= batch.size_bytes
        self.held_bytes -= batch.memory_bytes
        return batch

    def is_turn_over(self, offset: int) -> bool:
        """Return whether the record at an offset is in an object that belongs to a later turn."""
        if self.stripe is None or self.until_number is None:
            return False
        number = self.stripe.number_at(self.partition.partition, offset)
        return number is not None and number >= self.until_number

    def waits_for_stripe(self) -> bool:
        """Return whether the partition is read again when its stripe has more, and not before."""
        return self.is_at_end and self.due_ms == math.inf

    # --- reads -----------------------------------------------------------------------------------

    def is_fetchable(self, max_bytes: int) -> bool:
        """Return whether the partition may be read in its present state.

        Args:
            max_bytes: the memory of fetched batches from which on no more are fetched.
        """
        return (
            self.is_assigned
            and not self.is_paused
            and self.error is None
            and (not self.completed or self.held_bytes < max_bytes)
        )

    def stream(self, version: int) -> Batches | None:
        """Return the open stream of batches, None if there is none for this version."""
        if self._stream is None or self._stream[0] != version:
            return None
        return self._stream[1]

    def open_stream(self, version: int, batches: Batches) -> Batches:
        """Keep a stream of batches from ``offset`` on for the next reads, and return it."""
        self._stream = version, batches
        return batches

    def close_stream(self) -> None:
        """Let the next read open a stream."""
        self._stream = None

    def make_due(self) -> None:
        """Let the next read begin at once: there may be more to read."""
        self.due_ms = 0.0

    def on_read(self, now_ms: float, *, has_records: bool) -> None:
        """Update the state after a read whose batches were added."""
        self.failures = 0
        self.due_ms = 0.0
        self.is_at_end = False
        if has_records:
            self.records_ms = now_ms
            self.is_at_rest = False
        self.end_offset = max(self.end_offset, self.offset)

    def on_end(self, due_ms: float, *, is_at_rest: bool) -> None:
        """Update the state after a read that found no more records.

        Args:
            due_ms: the monotonic time of the next read.
            is_at_rest: whether the partition is read less often from now on.
        """
        self.is_at_end = True
        self.end_offset = self.offset
        self.is_at_rest = is_at_rest
        self.due_ms = due_ms

    def on_failure(self, error: Exception) -> None:
        """Stop reading until a seek, and report the error after the fetched batches."""
        self.error = error

    def on_transient_failure(self, due_ms: float) -> None:
        """Count a failure, and read again from ``offset`` at the monotonic time ``due_ms``."""
        self.failures += 1
        self.error = None
        self.due_ms = due_ms
