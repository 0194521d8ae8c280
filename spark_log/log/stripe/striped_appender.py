"""Appends to one striped partition, by the appends of its stripe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.log.append import LogAppendInfo, MergeExecutor
from spark_log.log.segment import BatchAppend, StagedSegment
from spark_log.log.stripe.entry import StripeEntry, batches_of
from spark_log.log.stripe.stripe import Stripe
from spark_log.record import EndTransactionMarker


class StripedAppender:
    """Appends to one partition of a stripe. An object has no other replica.

    Attributes:
        stripe: the partition's stripe, as the process uses it.
        partition: number of the partition.
    """

    def __init__(
        self, stripe: Stripe, partition: int, merge_executor: MergeExecutor | None = None
    ) -> None:
        """Access no storage yet.

        Args:
            stripe: the partition's stripe, as the process uses it.
            partition: number of the partition.
            merge_executor: the thread on which appends take the stripe home; None: they do not.
        """
        self._merge_executor = merge_executor
        self.stripe = stripe
        self.partition = partition

    def append_segment(
        self, segment: StagedSegment, *, expected_end_offset: int | None = None
    ) -> LogAppendInfo:
        """Append the batches of a staged segment in one object, so that they are visible together.

        Args:
            segment: the segment, of records. It is read back, and stays staged.
            expected_end_offset: required log end offset; None appends at any offset.

        Raises:
            LogEndOffsetMismatchError: the log end offset is another one; nothing was appended.
            UnknownOutcomeError: it is not known whether the batches are in the log.
            SparkLogError: nothing was appended.
        """
        batches = batches_of(segment)
        if expected_end_offset is not None:
            records = pa.concat_batches([each.records for each in batches])
            batches = [BatchAppend(records, segment.producer)]
        entries = [StripeEntry(self.partition, batch, expected_end_offset) for batch in batches]
        (result,) = self.stripe.append_entries([entries], compression=segment.compression)
        self._take_home_if_due()
        if isinstance(result, SparkLogError):
            raise result
        return replace(result[0], last_offset=result[-1].last_offset)

    def append_batches(
        self, batches: Sequence[BatchAppend], compression: str
    ) -> list[LogAppendInfo | SparkLogError]:
        """Append batches of several producers, in one object if they can share it.

        Args:
            batches: the batches.
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.

        Returns:
            The result of each batch: its offsets, or the error that concerns it.
        """
        entries = [StripeEntry(self.partition, batch) for batch in batches]
        results = self.stripe.appends.append(entries, compression=compression)
        self._take_home_if_due()
        return [result for result in results if result is not None]

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the markers at the end of transactions that the log does not have yet.

        Args:
            markers: the markers, each of a different producer.

        Returns:
            The offsets of the first to the last appended marker; None if the log has all of them.

        Raises:
            UnknownOutcomeError: it is not known whether a marker is in the log.
            SparkLogError: a marker was not appended.
        """
        results = self.stripe.append_markers({self.partition: markers})
        for result in results:
            if isinstance(result, SparkLogError):
                raise result
        infos = [result for result in results if isinstance(result, LogAppendInfo)]
        return replace(infos[0], last_offset=infos[-1].last_offset) if infos else None

    def _take_home_if_due(self) -> None:
        if self._merge_executor is not None:
            self.stripe.take_home_if_due(self._merge_executor)

    def take_home(self, offset: int) -> None:
        """Take the stripe home until the records of the partition before an offset are at home.

        One thread of a process does so at a time: it is for all partitions. The stripe is polled
        if the log is not known up to the offset.

        Args:
            offset: the offset, at most the log end offset.

        Raises:
            CorruptRecordError: an object or a home marker is damaged or missing.
            StorageError: the storage does not answer.
        """
        reader = self.stripe.reader
        reader.reach(self.partition, offset)
        with self.stripe.taking_home:
            while reader.home_end(self.partition) < offset:
                self.stripe.take_home()
                reader.look_for_home()
