"""A segment: an immutable Arrow IPC file of record batches, read by offset and by time.

On storage: Arrow's file format with the schema of `record.schema`, one or more batch headers in
the ``custom_metadata`` of every Arrow batch, and optionally Arrow's buffer compression. Offsets
are relative to the base offset in the file's *name*; the file itself does not know it. A crash
while writing leaves a temporary file that no listing shows; a segment is complete or not there.
`log.segment_writer` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
)
from spark_log.log.file_names import SegmentName
from spark_log.log.offset_index import OffsetIndex
from spark_log.record import arrow_ipc
from spark_log.record.batch_header import (
    METADATA_KEY,
    BatchHeader,
    decode_headers,
)
from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import (
    FORMAT_VERSION,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
)
from spark_log.storage import Store

_GAPPED_SCHEMA = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive records of one leader epoch and one set of attributes, as they were read.

    Attributes:
        base_offset: the offset of the first row, where there are no gaps.
        records: columns as asked for; zero-copy where the file is local and not compressed.
        timestamp_type: 0 create time, 1 log append time.
        leader_epoch: of all rows.
        is_control: rows are markers, not for users.
        segment_base_offset: what ``offset_delta`` counts from, where that column is there.
        stored_bytes: size of the Arrow batch that they come from, as it is stored.
    """

    base_offset: int
    records: pa.RecordBatch
    timestamp_type: int
    leader_epoch: int
    is_control: bool
    segment_base_offset: int
    stored_bytes: int

    def offsets(self) -> np.ndarray:
        """Return the offset of every row, int64."""
        if OFFSET_DELTA_FIELD.name in self.records.schema.names:
            deltas = self.records.column(OFFSET_DELTA_FIELD.name).to_numpy()
            offsets: np.ndarray = deltas.astype(np.int64) + self.segment_base_offset
            return offsets
        return np.arange(self.base_offset, self.base_offset + self.records.num_rows)


class SegmentReader:
    """A segment file, opened: batches by offset and by time.

    Args to the constructor name the file by its directory; its base offset comes from its name.

    Raises:
        NotFoundError: it is gone.
        CorruptRecordError: it is not a segment of this partition, or its footer is damaged.
    """

    def __init__(
        self, store: Store, directory: str, name: SegmentName, *, topic_id: str, partition: int
    ) -> None:
        self._store = store
        self._directory = directory
        self._name = name
        self.path = f"{directory}/{name.log}"
        self._buffer = store.open_buffer(self.path)
        self._view = memoryview(self._buffer)
        try:
            footer = arrow_ipc.footer_bytes(self._view)
            self._blocks = arrow_ipc.read_blocks(self._view[max(0, len(self._view) - footer) :])
            arrow_ipc.check_blocks(self._blocks, len(self._view) - footer)
            self._schema = ipc.open_file(self._buffer).schema
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(f"not a readable Arrow file: {error}") from None
        self._check_identity(topic_id, partition)

    @property
    def base_offset(self) -> int:
        """From the file's name."""
        return self._name.base_offset

    @property
    def batch_count(self) -> int:
        """How many Arrow batches the file holds."""
        return len(self._blocks)

    @property
    def append_id(self) -> str:
        """The file's own identity, drawn by the writer."""
        return self._metadata("append_id")

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return int(self._buffer.size)

    @cached_property
    def end_offset(self) -> int:
        """The offset after the last one that the file holds (or, compacted, covers)."""
        if self._name.last_offset is not None:
            return self._name.last_offset + 1
        return self.base_offset + self.headers(self.batch_count - 1)[-1].last_offset_delta + 1

    @cached_property
    def max_timestamp_us(self) -> int:
        """The largest timestamp of all records."""
        return max(
            header.max_timestamp_us
            for ordinal in range(self.batch_count)
            for header in self.headers(ordinal)
        )

    def position(self, ordinal: int) -> int:
        """Return the byte position of the ``ordinal``-th Arrow batch's block."""
        return self._blocks[ordinal].position

    def headers(self, ordinal: int) -> tuple[BatchHeader, ...]:
        """Return the batch headers of the ``ordinal``-th Arrow batch, without decoding it."""
        try:
            value = arrow_ipc.read_custom_metadata(self._message(ordinal), METADATA_KEY)
            if value is None:
                raise ValueError("no batch header")
            headers = decode_headers(value)
            self._check_headers(ordinal, headers)
            return headers
        except ValueError as error:
            raise self._corrupt(str(error), self.position(ordinal)) from None

    def read(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> Iterator[LogBatch]:
        """Yield the records from ``start_offset`` to before ``end_offset``, batch by batch.

        Args:
            start_offset: records before it are left out.
            end_offset: records from it on are left out; None reads to the end of the file.
            columns: only these columns of `RECORD_SCHEMA`, in this order; None for all. Checksums
                cover all columns, so that they are checked only when all are read.
            check_crcs: whether to check them.

        Raises:
            CorruptRecordError: with file and position; what was yielded before it is sound.
        """
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        check = check_crcs and set(wanted) >= set(RECORD_SCHEMA.names)
        stored = [*wanted, OFFSET_DELTA_FIELD.name] if self._has_deltas else wanted
        reader = self._open(stored)
        previous: BatchHeader | None = None
        for ordinal in range(self._first_batch(start_offset), self.batch_count):
            headers = self.headers(ordinal)
            self._check_follows(previous, headers[0], ordinal)
            previous = headers[-1]
            first = self.base_offset + headers[0].base_offset_delta
            if end_offset is not None and first >= end_offset:
                return
            records = self._decode(reader, ordinal, headers, stored, check=check)
            yield from self._cut(ordinal, headers, records, start_offset, end_offset)

    def offset_for_time(self, timestamp_us: int, start_offset: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time, or None.

        Args:
            timestamp_us: microseconds since the epoch.
            start_offset: records before it do not count.
        """
        stored = ["timestamp", OFFSET_DELTA_FIELD.name] if self._has_deltas else ["timestamp"]
        reader = self._open(stored)
        # Not from where the time index says: nothing but all headers before it could tell that it
        # is right, and to pass over a batch takes no more than its header.
        for ordinal in range(self._first_batch(start_offset), self.batch_count):
            headers = self.headers(ordinal)
            if max(header.max_timestamp_us for header in headers) < timestamp_us:
                continue
            records = self._decode(reader, ordinal, headers, stored, check=False)
            for batch in self._cut(ordinal, headers, records, start_offset, None):
                times_us = batch.records.column("timestamp").cast(pa.int64()).to_numpy()
                hits = np.flatnonzero(times_us >= timestamp_us)
                if hits.size and not batch.is_control:
                    return int(batch.offsets()[hits[0]]), int(times_us[hits[0]])
        return None

    def _open(self, columns: Sequence[str]) -> ipc.RecordBatchFileReader:
        options = ipc.IpcReadOptions(use_threads=False)
        try:
            # Arrow copies a whole body to pick fields from it: worth it only where picking saves
            # decompression. Without it an uncompressed batch is never copied.
            if arrow_ipc.is_compressed(self._message(0)) and set(columns) < set(self._schema.names):
                options.included_fields = sorted(map(self._schema.get_field_index, columns))
            return ipc.open_file(self._buffer, options=options)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(str(error)) from None

    def _decode(
        self,
        reader: ipc.RecordBatchFileReader,
        ordinal: int,
        headers: Sequence[BatchHeader],
        columns: Sequence[str],
        *,
        check: bool,
    ) -> pa.RecordBatch:
        position = self.position(ordinal)
        try:
            records = reader.get_batch(ordinal).select(columns)
            # In full: what follows, and every user, trusts the offsets inside the buffers.
            records.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            raise self._corrupt(f"the record batch cannot be decoded: {error}", position) from None
        if sum(header.record_count for header in headers) != records.num_rows:
            raise self._corrupt("the batch headers do not cover the rows", position)
        if check:
            row = 0
            for header in headers:
                actual = self._crc32c(header, records.slice(row, header.record_count), position)
                if actual != header.crc32c:
                    raise self._corrupt(
                        f"checksum is {actual:#010x}, the batch header says {header.crc32c:#010x}",
                        position,
                    )
                row += header.record_count
        return records

    def _crc32c(self, header: BatchHeader, records: pa.RecordBatch, position: int) -> int:
        try:
            return batch_crc32c(header, records)
        except (ValueError, IndexError, pa.ArrowException) as error:
            raise self._corrupt(f"the record batch is inconsistent: {error}", position) from None

    def _cut(
        self,
        ordinal: int,
        headers: Sequence[BatchHeader],
        records: pa.RecordBatch,
        start_offset: int,
        end_offset: int | None,
    ) -> Iterator[LogBatch]:
        """Yield the part of an Arrow batch between two offsets, one piece per kind of header."""
        row = 0
        for kind, group in groupby(
            headers, key=lambda header: (header.attributes, header.leader_epoch)
        ):
            run = list(group)
            count = sum(header.record_count for header in run)
            batch = LogBatch(
                base_offset=self.base_offset + run[0].base_offset_delta,
                records=records.slice(row, count),
                timestamp_type=run[0].timestamp_type,
                leader_epoch=kind[1],
                is_control=run[0].is_control,
                segment_base_offset=self.base_offset,
                stored_bytes=self._blocks[ordinal].body_bytes,
            )
            row += count
            end = self.base_offset + run[-1].last_offset_delta + 1
            if start_offset > batch.base_offset or (end_offset is not None and end_offset < end):
                batch = _slice(batch, start_offset, end if end_offset is None else end_offset)
            if batch.records.num_rows:
                yield batch

    def _first_batch(self, offset: int) -> int:
        """Return the ordinal of the last Arrow batch that begins at or before ``offset``."""
        low, step = 0, self.batch_count
        floor = None if self._offset_index is None else self._offset_index.lookup(offset)
        if floor is not None:
            low, step = self._ordinal_at(floor.position), 1
            if self._starts_after(low, offset):
                low, step = 0, self.batch_count  # a wrong index: do without it
        while not self._starts_after(low + step, offset):
            low, step = low + step, step * 2
        high = min(low + step, self.batch_count)
        while high - low > 1:
            middle = (low + high) // 2
            if self._starts_after(middle, offset):
                high = middle
            else:
                low = middle
        return low

    def _starts_after(self, ordinal: int, offset: int) -> bool:
        if ordinal >= self.batch_count:
            return True
        return self.base_offset + self.headers(ordinal)[0].base_offset_delta > offset

    def _ordinal_at(self, position: int) -> int:
        low, high = 0, self.batch_count
        while high - low > 1:
            middle = (low + high) // 2
            if self._blocks[middle].position > position:
                high = middle
            else:
                low = middle
        return low

    @cached_property
    def _offset_index(self) -> OffsetIndex | None:
        data = self._derived(self._name.index)
        try:
            return None if data is None else OffsetIndex.from_bytes(self.base_offset, data)
        except ValueError:
            return None  # damaged: batch headers tell the same

    def _derived(self, name: str) -> pa.Buffer | None:
        if self.batch_count < 2:
            return None
        try:
            return self._store.open_buffer(f"{self._directory}/{name}")
        except NotFoundError:
            return None

    def _check_identity(self, topic_id: str, partition: int) -> None:
        version = self._metadata("format")
        if version != FORMAT_VERSION:
            raise self._corrupt(
                f"segment format {version!r}, this version reads {FORMAT_VERSION!r}"
            )
        owner = (self._metadata("topic_id"), self._metadata("partition"))
        if owner != (topic_id, str(partition)):
            raise self._corrupt(f"belongs to topic id and partition {owner}, not to this one")
        if not self._schema.equals(_GAPPED_SCHEMA if self._has_deltas else RECORD_SCHEMA):
            raise self._corrupt("its columns are not a segment's")
        if not self._blocks:
            raise self._corrupt("has no record batches")

    def _check_headers(self, ordinal: int, headers: Sequence[BatchHeader]) -> None:
        """Check what checksums cannot: headers tell the log's end, and their records stay unread.

        Raises:
            ValueError: the headers of a batch do not fit each other or their file.
        """
        previous: BatchHeader | None = None
        for header in headers:
            if header.record_count < 0 or (header.has_gaps and not self._has_deltas):
                raise ValueError("a batch header's offsets do not fit its record count")
            self._check_follows(previous, header, ordinal)
            previous = header
        if ordinal == 0 and self._name.last_offset is None and headers[0].base_offset_delta:
            raise ValueError("the first batch does not begin at the segment's base offset")

    def _check_follows(
        self, previous: BatchHeader | None, header: BatchHeader, ordinal: int
    ) -> None:
        if previous is None:
            return
        skipped = header.base_offset_delta - previous.last_offset_delta - 1
        if skipped < 0 or (skipped and not self._has_deltas):
            raise self._corrupt(
                "a batch does not begin where the one before it ends", self.position(ordinal)
            )

    @property
    def _has_deltas(self) -> bool:
        return len(self._schema) > len(RECORD_SCHEMA)

    def _message(self, ordinal: int) -> memoryview:
        block = self._blocks[ordinal]
        return self._view[block.position : block.position + block.metadata_bytes]

    def _metadata(self, key: str) -> str:
        value: bytes = (self._schema.metadata or {}).get(f"spark_log.{key}".encode(), b"")
        return value.decode("utf-8", "replace")

    def _corrupt(self, reason: str, position: int = -1) -> CorruptRecordError:
        where = f"{self.path}, position {position}" if position >= 0 else self.path
        return CorruptRecordError(
            f"{where}: {reason}. Restore the file from a copy, or read past it by seeking",
            path=self.path,
            position=position,
        )


def _slice(batch: LogBatch, start_offset: int, end_offset: int) -> LogBatch:
    if OFFSET_DELTA_FIELD.name in batch.records.schema.names:
        first, last = np.searchsorted(batch.offsets(), [start_offset, end_offset])
    else:
        first = max(0, start_offset - batch.base_offset)
        last = max(first, min(batch.records.num_rows, end_offset - batch.base_offset))
    rows = batch.records.slice(int(first), int(last - first))
    return replace(batch, base_offset=max(batch.base_offset, start_offset), records=rows)
