"""Group commit: the entries of all threads that wait while an object is put are the next object."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from spark_log.errors import UnknownOutcomeError
from spark_log.log.stripe.appender import AppendResult, OnPut, StripeAppender
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry
from spark_log.log.stripe.tail import Taken

MAX_GROUP_BYTES: Final = 33_554_432
"""Bytes of the records of one object; a single call may have more."""


@dataclass(slots=True, eq=False)
class _Request:
    """A call that waits for its results.

    Attributes:
        entries: the entries to append.
        compression: the codec to use if the topic has none of its own.
        ends: the ends of the partitions of the entries after the append; None if they are not
            needed.
        results: the results; None until they are known.
    """

    entries: Sequence[StripeEntry]
    compression: str
    ends: dict[int, tuple[int, int]] | None = None
    results: Sequence[AppendResult] | None = None

    @property
    def size_bytes(self) -> int:
        """Approximate size of its records in memory."""
        return sum(entry.size_bytes for entry in self.entries)


class GroupCommit:
    """Appends to one stripe for all threads of a process.

    A call that finds no append under way appends at once. Calls that arrive meanwhile wait; then
    one of them appends the entries of all of them. Nothing waits for a timer. The order of calls
    is kept.
    """

    appender_class: ClassVar[type[StripeAppender]] = StripeAppender
    condition_class: ClassVar[Callable[[], threading.Condition]] = threading.Condition
    """The classes of its parts. A subclass may have others."""

    def __init__(self, directory: StripeDirectory) -> None:
        """Access no storage yet."""
        self._appender = self.appender_class(directory)
        self._directory = directory
        self._changed = type(self).condition_class()
        self._waiting: deque[_Request] = deque()
        self._is_busy = False

    def share(self, taken: Taken, on_put: OnPut) -> None:
        """Share objects with what the process reads of the stripe (`StripeAppender.share`)."""
        self._appender.share(taken, on_put)

    @property
    def objects_behind_home(self) -> int:
        """Number of objects at and behind the newest home marker that this process knows of."""
        return self._appender.objects_behind_home

    @property
    def entries_behind_home(self) -> int:
        """Approximate number of their entries."""
        return self._appender.entries_behind_home

    @property
    def partitions(self) -> int:
        """Number of partitions that have had entries."""
        return self._appender.partitions

    def on_home(self, number: int) -> None:
        """Record the number of a home marker."""
        self._appender.home_number = max(self._appender.home_number, number)

    @property
    def observed_ms(self) -> float:
        """Monotonic time at which the next number was last known to be unused."""
        return self._appender.observed_ms

    def append(
        self,
        entries: Sequence[StripeEntry],
        *,
        compression: str = "none",
        ends: dict[int, tuple[int, int]] | None = None,
    ) -> Sequence[AppendResult]:
        """Append entries, together with those of other threads that wait. Thread-safe.

        Args:
            entries: the entries, in the order in which those of one partition get offsets.
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            ends: gets for each partition of the entries its log end offset after the append, and
                the last stable offset there. None if nobody needs them.

        Returns:
            The result of each entry (`StripeAppender.append`). Errors may be shared by several
            threads.

        Raises:
            ValueError: a partition is in another stripe; nothing was appended.
        """
        for entry in entries:
            self._directory.check_partition(entry.partition)
        request = _Request(entries, compression, ends)
        with self._changed:
            self._waiting.append(request)
        while True:
            with self._changed:
                while self._is_busy and request.results is None:
                    self._changed.wait()
                if request.results is not None:
                    return request.results
                self._is_busy = True
                group = self._take()
            try:
                self._append(group)
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()

    def _append(self, group: Sequence[_Request]) -> None:
        """Append the entries of some calls, and set the results of each."""
        entries = [entry for request in group for entry in request.entries]
        results: Sequence[AppendResult] = [
            UnknownOutcomeError(
                f"{self._directory.path}: the thread that appended these records ended. Read the "
                f"end of their partition to see whether they are in it",
                path=self._directory.path,
            )
        ] * len(entries)
        try:
            results = self._appender.append(entries, compression=group[0].compression)
        finally:
            first = 0
            for request in group:
                behind = first + len(request.entries)
                if request.ends is not None:
                    request.ends |= self._appender.ends(each.partition for each in request.entries)
                request.results = results[first:behind]
                first = behind

    def _take(self) -> list[_Request]:
        """Remove and return the calls of the next object."""
        group = [self._waiting.popleft()]
        size_bytes = group[0].size_bytes
        while self._waiting and self._waiting[0].compression == group[0].compression:
            size_bytes += self._waiting[0].size_bytes
            if size_bytes > MAX_GROUP_BYTES:
                break
            group.append(self._waiting.popleft())
        return group
