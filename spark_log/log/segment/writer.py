"""Writing a segment as a stream, in constant memory, before it has a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from spark_log.errors import (
    InvalidRecordError,
    StorageError,
    UnsupportedCompressionTypeError,
)
from spark_log.log.files import SegmentName
from spark_log.log.segment.batch_append import BatchAppend
from spark_log.log.segment.indexes import DEFAULT_INTERVAL_BYTES, IndexBuilder
from spark_log.log.segment.staged_copies import StagedCopies
from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.log.segment.validator import LogValidator
from spark_log.record import (
    CHECK_KEY,
    COMPRESSIONS,
    ENTRIES_KEY,
    METADATA_KEY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    EndTransactionMarker,
    EntryDirectory,
    ProducerAppend,
    SmallBatch,
    batch_crc32c,
    content_crc32c,
    encode_check,
    encode_headers,
    file_template,
    joined_records,
    latest_timestamp_us,
    marker_batch,
    marker_records,
    new_append_id,
    segment_schema,
    sequence_after,
    time_range_us,
    times_us_of,
    write_options,
)
from spark_log.storage import StagedBytes, StagedFile, Store, storage_errors

if TYPE_CHECKING:
    from spark_log.record import LeaderChange

MAX_SEGMENT_BYTES = 2**32 - 1
"""Maximum size of a segment: positions in the offset index are 32 bits."""

MAX_SEGMENT_RECORDS = 2**31 - 1
"""Maximum number of records: offset deltas in a batch header are 32 bits, signed."""


_ARROW_BATCH_BYTES = 1_048_576
"""Size from which the batches of several producers are not joined to a larger Arrow batch."""


class SegmentWriter:
    """Streams record batches into a staged segment, in constant memory."""

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        topic_id: str,
        partition: int,
        compression: str = "none",
        index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        leader_epoch: int = 0,
        producer: ProducerAppend | None = None,
        validator: LogValidator | None = None,
        with_offsets: bool = False,
        name: SegmentName | None = None,
        compaction_id: str | None = None,
        is_stripe: bool = False,
        copies: StagedCopies | None = None,
        on_failure: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Begin a segment.

        Args:
            store: the store that will hold the segment.
            directory: the partition's directory, relative to the store's root.
            topic_id: the topic's id.
            partition: number of the partition.
            compression: ``none``, ``lz4`` or ``zstd``.
            index_interval_bytes: bytes of log between two index entries.
            leader_epoch: the leader epoch in the batch headers.
            producer: the producer of an idempotent append. Sequence numbers continue from batch to
                batch.
            validator: validator of the records by the topic's settings; None checks nothing.
            with_offsets: whether to add the column ``offset_delta``, for a rewritten segment that
                lacks some offsets.
            name: name of a rewritten segment, which its file contains; None for a plain segment.
            compaction_id: id of the compaction that writes the segment; None for another writer.
            is_stripe: whether to write an object of a stripe, which needs `write_entries` at its
                end; ``partition`` is the stripe's number.
            copies: the segment's copies on other roots, made while it is written; None makes none.
            on_failure: function that is called with the error, before it is raised, if the segment
                cannot be staged.

        Raises:
            UnsupportedCompressionTypeError: Arrow's file format does not have this compression.
            StorageError: the segment cannot be staged.
        """
        self._producer = producer
        self._validator = validator
        self._append_id = new_append_id()
        self._identity = topic_id, partition, None if name is None else name.stem, compaction_id
        self._with_offsets = with_offsets
        self._store = store
        self._directory = directory
        self._compression = compression
        self._leader_epoch = leader_epoch
        self._indexes = IndexBuilder(index_interval_bytes)
        if compression not in COMPRESSIONS:
            raise UnsupportedCompressionTypeError(
                f"compression.type {compression!r} does not exist in Arrow's file format; "
                f"use one of none, lz4, zstd",
                key="compression.type",
            )
        self._copies = copies
        self._errors = _ReportedErrors(directory, on_failure)
        self._file: _ArrowFile | None = None
        self._small: _SmallFile | None = None
        self._is_stripe = is_stripe
        is_plain = name is None and compaction_id is None and not with_offsets
        self._may_be_small = is_plain and not is_stripe
        if not self._may_be_small:
            with self._errors:
                self._arrow_file()
        self._next_delta = 0
        self._min_timestamp_us: int | None = None
        self._max_timestamp_us: int | None = None
        self._last_header: BatchHeader | None = None
        self._headers: tuple[BatchHeader, ...] = ()
        self._producers: tuple[ProducerAppend | None, ...] = ()
        self._markers: tuple[EndTransactionMarker, ...] = ()
        self._ordinals: list[int] = []

    @property
    def record_count(self) -> int:
        """Number of offsets covered so far, also by records that a rewrite left out."""
        return self._next_delta

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        if self._small is not None:
            return len(self._small.data)
        return 0 if self._file is None else self._file.staged.size_bytes

    def write(self, records: pa.RecordBatch, *, attributes: int = 0) -> BatchHeader:
        """Write one record batch, and return its header.

        Args:
            records: columns of `RECORD_SCHEMA`, at least one row.
            attributes: bits for the batch header, besides those of the validator.

        Raises:
            InvalidRecordError: the batch has no row, or not the columns and types of
                `RECORD_SCHEMA`.
            RecordTooLargeError, InvalidTimestampError: the topic does not accept a record.
            StorageFullError: no part of the segment will be visible.
        """
        check_records(records)
        if self._validator is not None:
            records = self._validator.validate(records)
            attributes |= self._validator.attributes
        written = self._next_delta
        batch = records if written else self._taken(records)
        header, least_us = self._header(batch, self._producer, written, written, attributes)
        self._write(batch, [header], least_us)
        return header

    def write_small(self, small: SmallBatch) -> BatchHeader:
        """Write one small record batch, and return its header.

        The bytes are those that `write` writes for `SmallBatch.records`.

        Args:
            small: the batch.

        Raises:
            SparkLogError: See `write`.
        """
        validator = self._validator
        is_valid = validator is None or validator.accepts_as_is(small)
        if not is_valid or not self._may_be_small or self._next_delta:
            return self.write(small.records())
        header, least_us = self._header(small, self._producer, 0, 0, 0)
        self._write(small, [header], least_us)
        return header

    def write_batches(self, batches: Sequence[BatchAppend]) -> None:
        """Write the batches of several producers. The segment may have nothing else.

        Small batches share an Arrow batch, in which each keeps its own header: a reader of the
        segment then decodes few Arrow batches, as after a merge.

        Args:
            batches: batches that have been validated (`validated_batch`), at least one.

        Raises:
            StorageFullError: no part of the segment will be visible.
        """
        self._write_all(batches, NO_TIMESTAMP)
        self._producers = tuple(batch.producer for batch in batches)

    def write_entries(
        self,
        entries: Sequence[BatchAppend | EndTransactionMarker | LeaderChange],
        partitions: Sequence[int],
        leader_epochs: Sequence[int],
        timestamp_us: int,
    ) -> EntryDirectory:
        """Write the batches and control records of several partitions; return their directory.

        They are an object of a stripe, which may have nothing else. Small batches share an Arrow
        batch, as in `write_batches`. The last Arrow batch has no rows, and has the directory
        (`record.entry_directory`).

        Args:
            entries: batches that have been validated (`validated_batch`), transaction markers and
                barriers; at least one.
            partitions: the partition of each entry, ascending.
            leader_epochs: the leader epoch of each entry.
            timestamp_us: timestamp of the control records, microseconds since the epoch.

        Raises:
            StorageFullError: no part of the object will be visible.
        """
        self._write_all(entries, timestamp_us, leader_epochs)
        directory = EntryDirectory.of(partitions, self._ordinals, self._headers)
        with self._errors:
            self._arrow_file().write_metadata({ENTRIES_KEY: directory.encode()})
        return directory

    def _write_all(
        self,
        entries: Sequence[BatchAppend | EndTransactionMarker | LeaderChange],
        timestamp_us: int,
        leader_epochs: Sequence[int] = (),
    ) -> None:
        """Write batches and control records, of which small ones share an Arrow batch."""
        attributes = 0 if self._validator is None else self._validator.attributes
        headers: list[BatchHeader] = []
        joined: list[pa.RecordBatch | SmallBatch] = []
        content: pa.RecordBatch | SmallBatch
        first, ordinal, least_us, size_bytes, delta = 0, 0, NO_TIMESTAMP, 0, 0
        for number, entry in enumerate(entries):
            if leader_epochs:
                self._leader_epoch = leader_epochs[number]
            if isinstance(entry, BatchAppend):
                content = self._taken(entry.content)
                header, earliest_us = self._header(content, entry.producer, delta, 0, attributes)
                size_bytes += entry.size_bytes
            elif isinstance(entry, EndTransactionMarker):
                content = marker_records((entry,), timestamp_us)
                header = entry.header(delta, self._leader_epoch, timestamp_us)
                earliest_us = timestamp_us
                size_bytes += content.nbytes
            else:
                from spark_log.record import leader_change_records  # late: a stripe ends seldom

                content = leader_change_records(
                    entry.leader_epoch, entry.isr, entry.joining, timestamp_us
                )
                header = self._barrier_header(content, timestamp_us, delta)
                earliest_us = timestamp_us
                size_bytes += content.nbytes
            joined.append(content)
            least_us = earliest_us if number == first else min(least_us, earliest_us)
            headers.append(header)
            delta += header.record_count
            if size_bytes >= _ARROW_BATCH_BYTES or number == len(entries) - 1:
                taken = self._taken(joined[0]) if len(joined) == 1 else self._joined(joined)
                self._write(taken, headers[first:], least_us)
                self._ordinals += [ordinal] * len(joined)
                first, ordinal, size_bytes = number + 1, ordinal + 1, 0
                joined.clear()
        self._headers = tuple(headers)

    def write_markers(self, markers: Sequence[EndTransactionMarker], timestamp_us: int) -> None:
        """Write transaction markers, each as a control batch, in one Arrow batch.

        The segment may have nothing else.

        Args:
            markers: the markers, at least one.
            timestamp_us: timestamp of the control records, microseconds since the epoch.

        Raises:
            StorageFullError: no part of the segment will be visible.
        """
        records = marker_batch(markers, timestamp_us) or marker_records(markers, timestamp_us)
        headers = [
            marker.header(row, self._leader_epoch, timestamp_us)
            for row, marker in enumerate(markers)
        ]
        self._write(records, headers, timestamp_us)
        self._headers, self._markers = tuple(headers), tuple(markers)

    def write_barrier(self, records: pa.RecordBatch, timestamp_us: int) -> None:
        """Write the barrier of the segment's leader epoch. The segment may have nothing else.

        Args:
            records: the barrier's control record, from `leader_change_records`.
            timestamp_us: timestamp of the record, microseconds since the epoch.

        Raises:
            StorageFullError: no part of the segment will be visible.
        """
        header = self._barrier_header(records, timestamp_us)
        self._write(records, [header], timestamp_us)
        self._headers = (header,)

    def _barrier_header(
        self, records: pa.RecordBatch, timestamp_us: int, base_delta: int = 0
    ) -> BatchHeader:
        """Return the header of a barrier."""
        header = BatchHeader(
            base_offset_delta=base_delta,
            last_offset_delta=base_delta,
            leader_epoch=self._leader_epoch,
            attributes=BatchHeader.CONTROL_BIT,
            crc32c=0,
            base_timestamp_us=timestamp_us,
            max_timestamp_us=timestamp_us,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=1,
        )
        return replace(header, crc32c=batch_crc32c(header, records))

    def write_rewritten(self, records: pa.RecordBatch, headers: Sequence[BatchHeader]) -> None:
        """Write batches of the log as one Arrow batch that keeps their headers.

        Args:
            records: the rows of all batches, with the columns of `RECORD_SCHEMA`, and
                ``offset_delta`` if the writer was created ``with_offsets`` (`record.rebase`).
            headers: the batches' headers, with offset deltas relative to the base offset of this
                segment and unchanged checksums.

        Raises:
            InvalidRecordError: the headers do not fit the rows, or offsets are not ascending.
            StorageFullError: no part of the segment will be visible.
        """
        check_rewritten(records, headers, self._next_delta, with_offsets=self._with_offsets)
        columns = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD) if self._with_offsets else RECORD_SCHEMA
        if not records.schema.equals(columns):
            raise InvalidRecordError(
                f"rewritten records need the columns {columns.names}, got "
                f"{records.schema.to_string()}"
            )
        times_us = times_us_of(records)
        self._write(records, headers, int(times_us.min()) if len(times_us) else None)

    def finish(self) -> StagedSegment:
        """Close the file, and return the staged segment.

        Raises:
            InvalidRecordError: no record was written.
            StorageFullError: no part of the segment will be visible.
        """
        if self._last_header is None:
            raise InvalidRecordError("a segment needs at least one record")
        append_id = self._append_id.decode()
        least_us, latest_us = self._min_timestamp_us, self._max_timestamp_us
        staged: StagedFile
        with self._errors:
            if self._small is not None:
                staged = StagedBytes(self._small.data)
            else:
                staged = self._arrow_file().close()
            if self._copies is not None:
                self._copies.on_complete(staged)
            return StagedSegment(
                staged,
                append_id,
                self._next_delta,
                self._last_header,
                self._headers,
                *self._indexes.files(append_id),
                producer=self._producer,
                producers=self._producers,
                markers=self._markers,
                content=None if self._small is None else self._small.batch.content,
                # A compacted segment may have no records:
                min_timestamp_us=NO_TIMESTAMP if least_us is None else least_us,
                max_timestamp_us=NO_TIMESTAMP if latest_us is None else latest_us,
                staged_for=f"{self._store.url}/{self._directory}",
                compression=self._compression,
                copies=self._copies,
            )

    def discard(self) -> None:
        """Delete the staged file and its copies. A segment that was appended from it stays."""
        if self._file is not None:
            self._file.staged.discard()
        if self._copies is not None:
            self._copies.discard()

    def _taken(self, records: pa.RecordBatch | SmallBatch) -> pa.RecordBatch | SmallBatch:
        """Return the buffers of records that a template takes; other records as they are."""
        if isinstance(records, SmallBatch) or not self._may_be_small:
            return records
        return SmallBatch.of(records) or records

    def _joined(
        self, contents: Sequence[pa.RecordBatch | SmallBatch]
    ) -> pa.RecordBatch | SmallBatch:
        """Return the records of several entries as one Arrow batch, or as its buffers."""
        small = [each for each in contents if isinstance(each, SmallBatch)]
        if self._may_be_small and len(small) == len(contents):
            joined = SmallBatch.joined(small)
            if joined is not None:
                return joined
        return self._taken(joined_records(contents))

    def _arrow_file(self) -> _ArrowFile:
        """Return the staged file, which is made when it is needed."""
        if self._file is None:
            schema = segment_schema(
                *self._identity, append_id=self._append_id, is_stripe=self._is_stripe
            )
            if self._with_offsets:
                schema = schema.append(OFFSET_DELTA_FIELD)
            self._file = _ArrowFile(self._store, self._directory, schema, self._compression)
        return self._file

    def _header(
        self,
        records: pa.RecordBatch | SmallBatch,
        producer: ProducerAppend | None,
        base_delta: int,
        skipped: int,
        attributes: int,
    ) -> tuple[BatchHeader, int]:
        """Return the header of a record batch, and the least timestamp of its records.

        Args:
            records: the records, as they are written.
            producer: the producer of an idempotent append, or None.
            base_delta: the offset delta of the first record.
            skipped: number of records of this append before these ones.
            attributes: bits for the header.
        """
        if isinstance(records, SmallBatch):
            rows, (first_us, least_us, latest_us) = records.rows, records.time_range_us()
        else:
            rows, (first_us, least_us, latest_us) = records.num_rows, time_range_us(records)
        producer_id, producer_epoch, sequence = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        if producer is not None:
            producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
            sequence = sequence_after(producer.base_sequence, skipped)
            if producer.is_transactional:
                attributes |= BatchHeader.TRANSACTIONAL_BIT
        # The fields before and behind the checksum: `replace` would take 400 opcodes more.
        before = base_delta, base_delta + rows - 1, self._leader_epoch, attributes
        behind = first_us, latest_us, producer_id, producer_epoch, sequence, rows
        if isinstance(records, SmallBatch):
            crc32c = content_crc32c(rows - 1, *before[2:], *behind, content=records.content)
        else:
            crc32c = batch_crc32c(BatchHeader(*before, 0, *behind), records)
        return BatchHeader(*before, crc32c, *behind), least_us

    def _write(
        self,
        records: pa.RecordBatch | SmallBatch,
        headers: Sequence[BatchHeader],
        least_us: int | None,
    ) -> None:
        position = self.size_bytes
        last_delta = headers[-1].last_offset_delta
        if last_delta >= MAX_SEGMENT_RECORDS or position > MAX_SEGMENT_BYTES:
            raise InvalidRecordError(
                f"a segment holds at most {MAX_SEGMENT_RECORDS} records in {MAX_SEGMENT_BYTES} "
                f"bytes. Append the other records as another segment"
            )
        value = encode_headers(headers)
        if isinstance(records, SmallBatch) and (self._next_delta or not self._may_be_small):
            records = records.records()
        if isinstance(records, SmallBatch):
            check = encode_check(self._append_id, value, None)
            topic_id, partition, _, _ = self._identity
            data = file_template(topic_id, partition).fill(
                self._append_id, value, check, records, self._compression
            )
            self._small = _SmallFile(data, records, value, check)
            self._indexes.add(0, headers)
        else:
            check = encode_check(self._append_id, value, records)
            with self._errors:
                file = self._arrow_file()
                if self._small is not None:
                    _, first, first_value, first_check = self._small
                    file.write(first.records(), first_value, first_check)
                    self._small = None
                position = file.staged.size_bytes
                self._indexes.add(position, headers)
                file.write(records, value, check)
                if self._copies is not None:
                    self._copies.on_written(file.staged)
        latest_us = latest_timestamp_us(headers)
        if latest_us is not None and (
            self._max_timestamp_us is None or latest_us > self._max_timestamp_us
        ):
            self._max_timestamp_us = latest_us
        if least_us is not None and (
            self._min_timestamp_us is None or least_us < self._min_timestamp_us
        ):
            self._min_timestamp_us = least_us
        self._next_delta = last_delta + 1
        self._last_header = headers[-1]


class _SmallFile(NamedTuple):
    """The file of a segment with one small batch, and the batch, in case another one follows."""

    data: bytes
    batch: SmallBatch
    value: bytes
    check: bytes


class _ArrowFile:
    """A staged file that Arrow writes."""

    def __init__(self, store: Store, directory: str, schema: pa.Schema, compression: str) -> None:
        self.staged = store.stage(directory)
        try:
            self._writer = ipc.new_file(
                self.staged.sink, schema, options=write_options(compression)
            )
        except BaseException:
            self.staged.discard()
            raise
        self._metadata = schema.metadata

    def write(self, records: pa.RecordBatch, value: bytes, check: bytes) -> None:
        self._writer.write_batch(
            records.replace_schema_metadata(self._metadata),
            custom_metadata={METADATA_KEY: value, CHECK_KEY: check},
        )

    def write_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Write an Arrow batch without rows that has custom metadata."""
        schema = RECORD_SCHEMA.with_metadata(self._metadata)
        # A batch of no Python values would import pandas, which takes most of a second.
        empty = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in schema], schema=schema
        )
        self._writer.write_batch(empty, custom_metadata=metadata)

    def close(self) -> StagedFile:
        self._writer.close()
        self.staged.seal()
        return self.staged


def check_records(records: pa.RecordBatch) -> None:
    """Check that a record batch has rows, the right columns, and no null where none may be.

    Raises:
        InvalidRecordError: it has not.
    """
    if not records.num_rows or not records.schema.equals(RECORD_SCHEMA):
        raise InvalidRecordError(
            f"a record batch needs rows and the columns {RECORD_SCHEMA.to_string()}; "
            f"got {records.num_rows} rows of {records.schema.to_string()}"
        )
    timestamps = records.column("timestamp")
    if timestamps.null_count:
        raise InvalidRecordError("a record has no timestamp; every record needs one")
    headers = records.column("headers")
    if headers.null_count < len(headers):  # most records have none
        items = headers.flatten()
        if items.null_count or items.field(0).null_count:
            raise InvalidRecordError("a record header has no name; every header needs one")


def validated_batch(batch: BatchAppend, validator: LogValidator) -> BatchAppend:
    """Return a batch as it is written by `SegmentWriter.write_batches`.

    Args:
        batch: the batch of a client.
        validator: validator of the records by the topic's settings; it sets LogAppendTime.

    Raises:
        InvalidRecordError, RecordTooLargeError, InvalidTimestampError: the topic does not accept a
            record.
    """
    content = batch.content
    if isinstance(content, SmallBatch):
        if validator.accepts_as_is(content):
            return batch
        content = content.records()
    check_records(content)
    records = validator.validate(content)
    return batch if records is batch.content else replace(batch, content=records)


def check_rewritten(
    records: pa.RecordBatch,
    headers: Sequence[BatchHeader],
    following: int,
    *,
    with_offsets: bool,
) -> None:
    """Check that batches fit their rows, and are in offset order.

    Args:
        records: the rows of all batches.
        headers: the batches' headers.
        following: the offset delta behind the last that was written.
        with_offsets: whether offsets may be missing.

    Raises:
        InvalidRecordError: they do not fit.
    """
    counted = sum(header.record_count for header in headers)
    position, fits = following, bool(headers) and counted == records.num_rows
    for header in headers:
        skipped = header.base_offset_delta - position
        fits = fits and (skipped >= 0 if with_offsets else not (skipped or header.has_gaps))
        position = header.last_offset_delta + 1
    if not fits:
        raise InvalidRecordError(
            f"{len(headers)} batch headers of {counted} rows do not fit {records.num_rows} rows "
            f"that follow on offset {following} of the segment"
        )


class _ReportedErrors(storage_errors):
    """Turns the operating system's errors inside a block into this package's, and reports them."""

    __slots__ = ("_on_failure",)

    def __init__(self, directory: str, on_failure: Callable[[StorageError], None] | None) -> None:
        super().__init__(directory)
        self._on_failure = on_failure

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            super().__exit__(kind, error, traceback)
        except StorageError as translated:
            self._report(translated)
            raise
        if isinstance(error, StorageError):
            self._report(error)

    def _report(self, error: StorageError) -> None:
        if self._on_failure is not None:
            self._on_failure(error)
