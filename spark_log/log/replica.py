"""One replica of a partition's log: the objects that read one directory, and append to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyarrow import ipc

from spark_log.config import TopicConfig
from spark_log.errors import LogTruncatedError, NotFoundError, SparkLogError
from spark_log.log.append import Appender, FollowerAppender, MergeExecutor
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import LiveSegment
from spark_log.log.producers import EndTransactionMarker, ProducerAppend, leader_change_records
from spark_log.log.read import LogReader
from spark_log.log.segment import (
    LogValidator,
    SegmentReader,
    SegmentWriter,
    StagedCopies,
    StagedSegment,
)
from spark_log.log.snapshot import Snapshots
from spark_log.record import METADATA_KEY, BatchHeader, batch_crc32c, decode_headers


class Replica:
    """One replica of a partition, in one directory. For one thread at a time.

    Attributes:
        files: the directory.
        snapshots: the snapshots of the log's state.
        appender: the appender of a leader, which appends at the log's end.
        follower: the appender of a follower, which puts copies of the leader's segments at the
            leader's offsets.
        reader: the reader of the log.
    """

    def __init__(
        self,
        files: PartitionDirectory,
        config: TopicConfig,
        *,
        has_leader_epochs: bool = False,
        merge_executor: MergeExecutor | None = None,
    ) -> None:
        """Make the replica's objects. Accesses no storage yet.

        Args:
            files: the directory.
            config: the topic's settings.
            has_leader_epochs: whether appends are checked against the leader epoch of the log.
            merge_executor: runner of tail merges on another thread. If it is None, the append that
                makes a merge due waits for the merge.
        """
        self.files = files
        self.snapshots = Snapshots(files, config)
        self.appender = Appender(
            files,
            self.snapshots,
            config,
            has_leader_epochs=has_leader_epochs,
            merge_executor=merge_executor,
        )
        self.follower = FollowerAppender(files, config, self.appender.derived)
        self.reader = LogReader(files, self.snapshots)
        self._config = config

    def __repr__(self) -> str:
        return f"<Replica url={self.files.url!r}>"

    # --- staging ---------------------------------------------------------------------------------

    def segment_writer(
        self,
        compression: str = "none",
        producer: ProducerAppend | None = None,
        *,
        leader_epoch: int = 0,
        validator: LogValidator | None = None,
        copies: StagedCopies | None = None,
        on_failure: Callable[[SparkLogError], None] | None = None,
    ) -> SegmentWriter:
        """Return a writer for a segment that the appender puts.

        Args:
            compression: ``none``, ``lz4`` or ``zstd``.
            producer: the producer of an idempotent append; None for another append.
            leader_epoch: the leader epoch in the batch headers.
            validator: validator of the records by the topic's settings; None checks nothing.
            copies: the segment's copies on the roots of followers, made while it is staged; None
                makes none.
            on_failure: function that is called with the error, before it is raised, if the segment
                cannot be staged.

        Raises:
            LogTruncatedError: the directory was removed.
            StorageError: the segment cannot be staged.
        """
        try:
            self.files.check_not_removed()
        except LogTruncatedError as error:
            if on_failure is not None:
                on_failure(error)
            raise
        try:
            return SegmentWriter(
                self.files.store,
                self.files.path,
                topic_id=self.files.topic_id,
                partition=self.files.partition,
                compression=compression,
                index_interval_bytes=self._config.index_interval_bytes,
                leader_epoch=leader_epoch,
                producer=producer,
                validator=validator,
                copies=copies,
                on_failure=on_failure,
            )
        except NotFoundError:
            self.files.observe()  # raises if the directory was removed
            raise

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
        writer = self.segment_writer(
            segment.compression, segment.producer, leader_epoch=leader_epoch, copies=copies
        )
        try:
            with ipc.open_file(segment.data) as file:
                for number in range(file.num_record_batches):
                    records, metadata = file.get_batch_with_custom_metadata(number)
                    writer.write_rewritten(
                        records,
                        [_in_epoch(leader_epoch, records, metadata)],
                    )
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

    def stage_markers(
        self, markers: Sequence[EndTransactionMarker], leader_epoch: int
    ) -> StagedSegment:
        """Return a staged segment of transaction markers.

        Raises:
            StorageError: the segment cannot be staged.
        """
        writer = self.segment_writer(leader_epoch=leader_epoch)
        try:
            writer.write_markers(markers, self.files.clock.time_us())
            return writer.finish()
        except BaseException:
            writer.discard()
            raise

    def append_barrier(self, leader_epoch: int, isr: Sequence[int], joining: Sequence[int]) -> None:
        """Append the barrier of a leader epoch at the log's end, unless the log has it.

        Args:
            leader_epoch: the leader epoch that begins.
            isr: ids of the in-sync replicas, this one first.
            joining: ids of the replicas that will join them.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the barrier is in the log.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        now_us = self.files.clock.time_us()
        writer = self.segment_writer(leader_epoch=leader_epoch)
        try:
            writer.write_barrier(leader_change_records(leader_epoch, isr, joining, now_us), now_us)
            self.appender.append_barrier(writer.finish())
        finally:
            writer.discard()

    # --- leader epochs ---------------------------------------------------------------------------

    def leader_epoch(self, view: LogView) -> int | None:
        """Return the leader epoch of the last batch of a view.

        Returns:
            -1 for a log that never had a batch; None for an emptied log whose start marker does not
            contain it.

        Raises:
            NotFoundError: the last segment was rewritten and deleted meanwhile.
            CorruptRecordError: the last segment is damaged.
        """
        if view.leader_epoch is not None:
            return view.leader_epoch
        if not view.live.segments:
            return self.files.leader_epoch_at_start(view.log_start_offset)
        return self.files.open_listed(view.live.segments[-1], view.observed_ms).leader_epoch

    def leader_epoch_at(self, offset: int, view: LogView) -> int:
        """Return the leader epoch of the batch that contains an offset of a view.

        Raises:
            OffsetOutOfRangeError: the log starts behind the offset now.
            CorruptRecordError: the segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        while True:
            segment, reader = self._segment_at(offset, view)
            headers = reader.header_array()
            is_before = headers["base_offset_delta"] <= offset - reader.base_offset
            if is_before.any():
                return int(headers["leader_epoch"][is_before][-1])
            # A compaction has removed the batch, and the ones before it in its segment.
            if segment.start_offset <= view.log_start_offset:
                return int(headers["leader_epoch"][0])
            offset = segment.start_offset - 1

    def _segment_at(self, offset: int, view: LogView) -> tuple[LiveSegment, SegmentReader]:
        """Open the segment that contains an offset of a view.

        The listing may lack a segment that appeared during it. The segment before it has records of
        the same epoch, or of an older one.
        """
        _, segment, reader = next(self.files.walk(view, offset, offset + 1))
        return segment, reader

    def offset_of_epoch(self, leader_epoch: int, view: LogView) -> int:
        """Return the offset at which a leader epoch, or else a later one, begins in a view.

        Returns:
            The log end offset if the log has no such batch.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        doubted: LiveSegment | None = None
        while True:
            try:
                segments = view.live.segments
                epochs_of = partial(self._first_epoch, view)
                index = bisect_left(segments, leader_epoch, key=epochs_of)
                if index:
                    segment = segments[index - 1]
                    before = self.files.open_listed(segment, view.observed_ms)
                    if segment.end_offset not in (None, before.end_offset):
                        if segment == doubted:
                            raise self.files.missing(segment, before.end_offset)
                        doubted = segment  # the listing may lack one that appeared during it
                        view = self.files.observe()
                        continue
                    headers = before.header_array()
                    deltas = headers["base_offset_delta"][headers["leader_epoch"] >= leader_epoch]
                    if len(deltas):
                        return before.base_offset + int(deltas[0])
                if index == len(segments):
                    return view.log_end_offset
                return segments[index].start_offset
            except NotFoundError:  # rewritten since
                view = self.files.observe()

    def _first_epoch(self, view: LogView, segment: LiveSegment) -> int:
        headers = self.files.open_listed(segment, view.observed_ms).header_array()
        return int(headers["leader_epoch"][0])


def _in_epoch(
    leader_epoch: int, records: pa.RecordBatch, metadata: Mapping[bytes, bytes]
) -> BatchHeader:
    """Return the header of an appended batch, with another leader epoch."""
    (header,) = decode_headers(metadata[METADATA_KEY])
    header = replace(header, leader_epoch=leader_epoch)
    return replace(header, crc32c=batch_crc32c(header, records))
