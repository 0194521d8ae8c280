"""Reading a partition's log by offset and by time, while it is appended to and rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_log.errors import CorruptRecordError, NotFoundError
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment import LogBatch, SegmentReader, SegmentTimes
from spark_log.log.snapshot import Snapshots
from spark_log.log.tail_view import TailView


class LogReader:
    """Reads one partition's log. For one thread at a time.

    Readers take no locks. A segment that is rewritten and deleted during a read is read on from its
    replacement, so a reader sees each record once. Between two reads it keeps the tail of the log,
    so that a read at the end costs one request for the next segment.
    """

    def __init__(self, directory: PartitionDirectory, snapshots: Snapshots) -> None:
        self._directory = directory
        self._snapshots = snapshots
        self._tail: TailView | None = None
        self._times: SegmentTimes | None = None

    def read_on(
        self, offset: int, columns: Sequence[str] | None, *, check_crcs: bool
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield batches from ``offset`` to the log's end, each with the offset after it.

        Args:
            offset: of the first record.
            columns: of `RECORD_SCHEMA`; None for all.
            check_crcs: whether to check the checksums of batches.

        Yields:
            Batches, control batches included; None at the end of a segment, whose end offset may
            lie behind its last record.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        while True:
            tail, is_new = self._tail, False
            if tail is None or not tail.is_valid or not tail.holds(offset):
                view, is_new = self._directory.observe(), True
                tail = self._tail = TailView(self._directory, view)
                for batch, next_offset in self._read(
                    view, offset, view.log_end_offset, columns, check_crcs
                ):
                    yield batch, next_offset
                    offset = next_offset
            found = tail.open_at(offset) if tail.holds(offset) else None
            if found is not None:
                try:
                    for batch, next_offset in self._read_segment(
                        found, offset, None, tail.observed_ms, columns, check_crcs
                    ):
                        yield batch, next_offset
                        offset = next_offset
                except NotFoundError:
                    self._tail = None
            elif offset == tail.log_end_offset and (tail.is_valid or is_new):
                return
            else:
                self._tail = None

    def scan(
        self,
        start_offset: int,
        end_offset: int | None,
        columns: Sequence[str] | None,
        *,
        check_crcs: bool,
    ) -> Iterator[LogBatch]:
        """Yield batches from ``start_offset`` to before ``end_offset``, without control batches.

        Args:
            start_offset: of the first record.
            end_offset: records at and after it are left out. None reads to the current log end.
            columns: of `RECORD_SCHEMA`; None for all.
            check_crcs: whether to check the checksums of batches.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        view = self._directory.observe()
        end = view.log_end_offset if end_offset is None else end_offset
        for batch, _ in self._read(view, start_offset, end, columns, check_crcs):
            if batch is not None and not batch.is_control:
                yield batch

    def offset_for_time(self, timestamp_us: int, view: LogView | None) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        Args:
            timestamp_us: microseconds since the epoch.
            view: of the log, from an earlier listing; None lists it.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        view = view or self._directory.observe()
        while True:
            try:
                return self._offset_for_time(timestamp_us, view)
            except NotFoundError:  # a segment was rewritten, or deleted at the log's start
                _, view = self._snapshots.segments(self._directory.observe())

    def _offset_for_time(self, timestamp_us: int, view: LogView) -> tuple[int, int] | None:
        if self._times is None or self._times.view is not view:
            self._times = SegmentTimes(self._snapshots, view)
        for segment in self._times.segments_reaching(timestamp_us):
            reader = self._directory.open_listed(segment, view.observed_ms)
            found = reader.offset_for_time(timestamp_us, segment.start_offset)
            self._directory.check_unchanged(reader, view.observed_ms)
            if found is not None:
                return found
        return None

    def _read(
        self,
        view: LogView,
        offset: int,
        end_offset: int,
        columns: Sequence[str] | None,
        check_crcs: bool,
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield the batches of a view between two offsets, each with the offset after it.

        A segment that is rewritten and deleted meanwhile is read on from its replacement.
        """
        view.check_offset(offset, self._directory.path)
        while offset < min(end_offset, view.log_end_offset):
            self._snapshots.load_segment_ids(view)
            try:
                for begin, _, reader in self._directory.walk(view, offset, end_offset):
                    stop = min(end_offset, reader.end_offset)
                    for batch, next_offset in self._read_segment(
                        reader, begin, stop, view.observed_ms, columns, check_crcs
                    ):
                        yield batch, next_offset
                        offset = next_offset
            except NotFoundError:
                view = self._directory.observe()
                view.check_offset(offset, self._directory.path)

    def _read_segment(
        self,
        reader: SegmentReader,
        begin: int,
        end_offset: int | None,
        observed_ms: float,
        columns: Sequence[str] | None,
        check_crcs: bool,
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield the batches of one segment, each with the offset after it; None at the end.

        Raises:
            NotFoundError: on an object store, the segment was deleted meanwhile, or may have been.
        """
        try:
            for batch in reader.read(begin, end_offset, columns=columns, check_crcs=check_crcs):
                self._directory.check_unchanged(reader, observed_ms)
                yield batch, batch.end_offset
        except CorruptRecordError:
            self._directory.check_unchanged(reader, observed_ms)
            raise
        yield None, reader.end_offset if end_offset is None else end_offset
