"""`Stripe`: one stripe as one process uses it, with all of its threads and partitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Final

from spark_log.errors import SparkLogError
from spark_log.log.append import LogAppendInfo, MergeExecutor
from spark_log.log.segment import StagedSegment
from spark_log.log.stripe.appender import AppendResult
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry, batches_of
from spark_log.log.stripe.group_commit import GroupCommit
from spark_log.log.stripe.home import OpenPartition, TakenHome, take_home
from spark_log.log.stripe.reader import StripeReader
from spark_log.record import EndTransactionMarker
from spark_log.util import IN_PROCESS, SuppressedErrors

_log = logging.getLogger(__name__)

OBJECTS_BEHIND_HOME: Final = 3_600
"""Objects behind the home marker with which a writer takes home: those of an hour of one object a
second. Whoever joins reads all of them."""

FEW_OBJECTS_BEHIND_HOME: Final = 512
"""Objects with which it takes home at the earliest: partitions get a file at home each time."""

OBJECTS_FOR_EACH_PUT: Final = 16
"""Objects, between these two numbers, for each put that taking home costs: one for each partition,
and the marker. So it adds a sixteenth to the puts of appends, or less than a third from 225
partitions on."""

ENTRIES_BEHIND_HOME: Final = 1_000_000
"""Entries with which it does, too: whoever joins takes in all of them, a million in 12 s."""

_SPREAD: Final = 8
"""Writers take home up to an eighth later than at these numbers, so that mostly one does."""


class Stripe:
    """One stripe as one process uses it. Thread-safe.

    The logs of all its partitions share the puts of their appends, and the requests at its end.

    Attributes:
        directory: the stripe's directory.
        appends: puts the entries of all threads.
        reader: what was read of the stripe.
        files_at_home: returns the directory of a partition's records at home.
        suppressed: counter of errors that fail no append and no read.
        taking_home: held by a thread that takes home what others may be waiting for, too.
    """

    reader_class: ClassVar[type[StripeReader]] = StripeReader
    appends_class: ClassVar[type[GroupCommit]] = GroupCommit
    """The classes of its parts. A subclass may have others."""

    def __init__(self, directory: StripeDirectory, open_partition: OpenPartition) -> None:
        """Access no storage yet.

        Args:
            directory: the stripe's directory.
            open_partition: returns the directory of a partition's records at home.
        """
        self.directory = directory
        self.files_at_home = open_partition
        self.appends = self.appends_class(directory)
        self.reader = self.reader_class(directory)
        self.appends.share(self.reader.taken, self.reader.add_own)
        self.suppressed = SuppressedErrors(IN_PROCESS)
        self._late = 1 + Random().random() / _SPREAD
        self._lock = threading.Lock()
        self.taking_home = threading.Lock()
        self._is_taking = False

    def __repr__(self) -> str:
        return f"<Stripe path={self.directory.path!r}>"

    def append_segments(
        self, segments: Sequence[tuple[int, StagedSegment]]
    ) -> list[Sequence[LogAppendInfo] | SparkLogError]:
        """Append staged segments of many partitions, by one put if they can share it.

        Args:
            segments: the number of a partition, and a segment of it; of each partition only one.
                They have one compression, and together at most `MAX_GROUP_BYTES` of records, if
                they are more than one.

        Returns:
            Of each segment the offsets of its batches; or the first error. After an
            `UnknownOutcomeError` some of its batches may be in the log, after another error those
            before the one that was refused.
        """
        entries = [
            [StripeEntry(partition, batch) for batch in batches_of(segment)]
            for partition, segment in segments
        ]
        return self.append_entries(entries, compression=segments[0][1].compression)

    def append_entries(
        self, groups: Sequence[Sequence[StripeEntry]], *, compression: str
    ) -> list[Sequence[LogAppendInfo] | SparkLogError]:
        """Append groups of batches; return the offsets of those of each group, or its first error.

        Args:
            groups: the batches, in groups.
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
        """
        results = iter(
            self.appends.append(
                [entry for group in groups for entry in group], compression=compression
            )
        )
        answers: list[Sequence[LogAppendInfo] | SparkLogError] = []
        for group in groups:
            of_group = [next(results) for _ in group]
            errors = (each for each in of_group if isinstance(each, SparkLogError))
            infos = [each for each in of_group if isinstance(each, LogAppendInfo)]
            answers.append(next(errors, infos))
        return answers

    def append_markers(
        self,
        markers: Mapping[int, Sequence[EndTransactionMarker]],
        *,
        ends: dict[int, tuple[int, int]] | None = None,
    ) -> Sequence[AppendResult]:
        """Append the markers of transactions that their partitions do not have, by one put.

        Args:
            markers: number of a partition → its markers, each of another producer.
            ends: see `GroupCommit.append`.

        Returns:
            The result of each marker, in order: its offset, an error, or None if its partition has
            it already.
        """
        entries = [
            StripeEntry(partition, marker)
            for partition, of_partition in markers.items()
            for marker in of_partition
        ]
        return self.appends.append(entries, ends=ends)

    def take_home(self) -> TakenHome | None:
        """Take home the objects behind the newest home marker (`take_home`)."""
        return take_home(self.directory, self.files_at_home)

    # --- taking home by writers ------------------------------------------------------------------

    def take_home_if_due(self, executor: MergeExecutor) -> None:
        """Take home on another thread if many objects are behind the home marker, after an append.

        One thread of the process does so at a time. An error is counted, and fails no append.

        Args:
            executor: the thread of merges.
        """
        if not self._is_due():
            return
        with self._lock:
            if self._is_taking:
                return
            self._is_taking = True
        if not executor.run(self._take_home_in_turn):
            self._is_taking = False

    def _is_due(self) -> bool:
        appends = self.appends
        worth_it = max(FEW_OBJECTS_BEHIND_HOME, OBJECTS_FOR_EACH_PUT * (appends.partitions + 1))
        return (
            appends.objects_behind_home >= min(worth_it, OBJECTS_BEHIND_HOME) * self._late
            or appends.entries_behind_home >= ENTRIES_BEHIND_HOME * self._late
        )

    def _take_home_in_turn(self) -> None:
        """Take home, unless another process has: an appender alone lists a stripe rarely."""
        path = self.directory.path
        try:
            with self.suppressed.suppress("taking home", path, SparkLogError):
                self.appends.on_home(self.directory.list().home_number)
                while self._is_due():
                    taken = self.take_home()
                    if taken is None:
                        return
                    self.appends.on_home(taken.number)
        finally:
            self._is_taking = False
