"""Staging the segments of one log: of records, markers and barriers, before they are put."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow import ipc

from spark_log.config import TopicConfig
from spark_log.errors import LogTruncatedError, NotFoundError, SparkLogError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.segment import (
    BatchAppend,
    LogValidator,
    SegmentWriter,
    StagedCopies,
    StagedSegment,
)
from spark_log.record import (
    METADATA_KEY,
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
    batch_crc32c,
    decode_headers,
)


class SegmentStager:
    """Stages segments in the directory of one log, from where an appender puts them."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        """Access no storage yet."""
        self._directory = directory
        self._config = config
        self._clock = directory.clock

    def segment_writer(
        self,
        compression: str = "none",
        producer: ProducerAppend | None = None,
        *,
        leader_epoch: int = 0,
        copies: StagedCopies | None = None,
        on_failure: Callable[[SparkLogError], None] | None = None,
    ) -> SegmentWriter:
        """Return a writer for a segment of records that are checked by the topic's settings.

        Args:
            compression: the codec to use if the topic's ``compression.type`` is ``producer``:
                ``none``, ``lz4`` or ``zstd``.
            producer: the producer of an idempotent append; None for another append.
            leader_epoch: the leader epoch in the batch headers.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.
            on_failure: function that is called with the error, before it is raised, if the segment
                cannot be staged.

        Raises:
            LogTruncatedError: the directory was removed.
            StorageError: the segment cannot be staged.
        """
        of_topic = self._config.compression_type
        return self._writer(
            compression if of_topic == "producer" else of_topic,
            producer,
            leader_epoch=leader_epoch,
            validator=LogValidator(self._config, self._clock),
            copies=copies,
            on_failure=on_failure,
        )

    def stage_again(
        self, segment: StagedSegment, leader_epoch: int, copies: StagedCopies | None = None
    ) -> StagedSegment:
        """Return a staged segment of the same records for this replica and another leader epoch.

        Args:
            segment: the staged segment, of records, not of markers; it stays unchanged.
            leader_epoch: the leader epoch in the batch headers.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.

        Raises:
            StorageError: the segment cannot be staged.
        """

        def write(writer: SegmentWriter) -> None:
            with ipc.open_file(segment.load()) as file:
                for number in range(file.num_record_batches):
                    records, metadata = file.get_batch_with_custom_metadata(number)
                    writer.write_rewritten(records, [_in_epoch(leader_epoch, records, metadata)])

        compression, producer = segment.compression, segment.producer
        return _staged(
            self._writer(compression, producer, leader_epoch=leader_epoch, copies=copies), write
        )

    def stage_batches(
        self,
        batches: Sequence[BatchAppend],
        compression: str,
        leader_epoch: int,
        copies: StagedCopies | None = None,
    ) -> StagedSegment:
        """Return a staged segment of the batches of several producers.

        Args:
            batches: batches that have been validated (`validated_batch`).
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            leader_epoch: the leader epoch in the batch headers.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.

        Raises:
            LogTruncatedError: the directory was removed.
            StorageError: the segment cannot be staged.
        """
        writer = self.segment_writer(compression, leader_epoch=leader_epoch, copies=copies)
        return _staged(writer, lambda writer: writer.write_batches(batches))

    def stage_markers(
        self, markers: Sequence[EndTransactionMarker], leader_epoch: int
    ) -> StagedSegment:
        """Return a staged segment of transaction markers.

        Raises:
            LogTruncatedError: the directory was removed.
            StorageError: the segment cannot be staged.
        """
        return _staged(
            self._writer(leader_epoch=leader_epoch),
            lambda writer: writer.write_markers(markers, self._clock.time_us()),
        )

    def stage_barrier(
        self, leader_epoch: int, isr: Sequence[int], joining: Sequence[int]
    ) -> StagedSegment:
        """Return a staged segment of the barrier of a leader epoch.

        Args:
            leader_epoch: the leader epoch that begins.
            isr: ids of the in-sync replicas, the leader first.
            joining: ids of the replicas that will join them.

        Raises:
            StorageError: the segment cannot be staged.
        """
        now_us = self._clock.time_us()
        # A late import: only an appender of replicas writes this record.
        from spark_log.record import leader_change_records

        records = leader_change_records(leader_epoch, isr, joining, now_us)
        return _staged(
            self._writer(leader_epoch=leader_epoch),
            lambda writer: writer.write_barrier(records, now_us),
        )

    def _writer(
        self,
        compression: str = "none",
        producer: ProducerAppend | None = None,
        *,
        leader_epoch: int,
        validator: LogValidator | None = None,
        copies: StagedCopies | None = None,
        on_failure: Callable[[SparkLogError], None] | None = None,
    ) -> SegmentWriter:
        try:
            self._directory.check_not_removed()
        except LogTruncatedError as error:
            if on_failure is not None:
                on_failure(error)
            raise
        try:
            return SegmentWriter(
                self._directory.store,
                self._directory.path,
                topic_id=self._directory.topic_id,
                partition=self._directory.partition,
                compression=compression,
                index_interval_bytes=self._config.index_interval_bytes,
                leader_epoch=leader_epoch,
                producer=producer,
                validator=validator,
                copies=copies,
                on_failure=on_failure,
            )
        except NotFoundError:
            self._directory.observe()  # raises if the directory was removed
            raise


def _staged(writer: SegmentWriter, write: Callable[[SegmentWriter], object]) -> StagedSegment:
    """Return the segment that a function writes; discard the writer if it fails."""
    try:
        write(writer)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def _in_epoch(
    leader_epoch: int, records: pa.RecordBatch, metadata: Mapping[bytes, bytes]
) -> BatchHeader:
    """Return the header of an appended batch, with another leader epoch."""
    (header,) = decode_headers(metadata[METADATA_KEY])
    header = replace(header, leader_epoch=leader_epoch)
    return replace(header, crc32c=batch_crc32c(header, records))
