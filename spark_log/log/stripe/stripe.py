"""`Stripe`: one stripe as one process uses it, with all of its threads and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spark_log.errors import SparkLogError
from spark_log.log.append import LogAppendInfo
from spark_log.log.segment import StagedSegment
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry, batches_of
from spark_log.log.stripe.group_commit import GroupCommit
from spark_log.log.stripe.home import OpenPartition, TakenHome, take_home
from spark_log.log.stripe.reader import StripeReader


class Stripe:
    """One stripe as one process uses it. Thread-safe.

    The logs of all its partitions share the puts of their appends, and the requests at its end.

    Attributes:
        directory: the stripe's directory.
        appends: puts the entries of all threads.
        reader: what was read of the stripe.
        files_at_home: returns the directory of a partition's records at home.
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

    def take_home(self) -> TakenHome | None:
        """Take home the objects behind the newest home marker (`take_home`)."""
        return take_home(self.directory, self.files_at_home)
