"""A segment: an immutable Arrow IPC file of record batches, read by offset and by time.

On storage: Arrow's file format with the schema of `record.schema`, one or more batch headers in
the ``custom_metadata`` of every Arrow batch, and optionally Arrow's buffer compression. Offsets
are relative to the base offset in the file's *name*; the file itself does not know it. A crash
while writing leaves a temporary file that no listing shows; a segment is complete or not there.
`log.segment.writer` writes it, `log.segment.file` fetches its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.file_names import SegmentName
from spark_log.log.segment.file import Decode, open_segment_file
from spark_log.log.segment.indexes import SegmentIndexes
from spark_log.log.segment.log_batch import LogBatch, cut_batches
from spark_log.log.segment.search import BatchSearch
from spark_log.record import arrow_ipc
from spark_log.record.arrays import ints_of, times_us_of
from spark_log.record.batch_check import CHECK_KEY, decode_check
from spark_log.record.batch_header import (
    METADATA_KEY,
    NO_TIMESTAMP,
    BatchHeader,
    decode_headers,
    latest_timestamp_us,
)
from spark_log.record.checksum import array_crc32c, batch_crc32c
from spark_log.record.schema import (
    FORMAT_VERSION,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
)
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

__all__ = ["LogBatch", "SegmentReader"]

_GAPPED_SCHEMA = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)


class _Headers(NamedTuple):
    """The batch headers of an Arrow batch, and what the check beside them tells.

    Attributes:
        ordinal: of the Arrow batch.
        headers: in the order of its rows.
        are_checked: whether there is such a check; files of earlier versions have none.
        column_sums: of each column of the file; empty where they have none.
    """

    ordinal: int
    headers: tuple[BatchHeader, ...]
    are_checked: bool
    column_sums: tuple[int, ...]


_NO_HEADERS: Final = _Headers(-1, (), False, ())


class SegmentReader:
    """A segment file, opened: batches by offset and by time.

    Args to the constructor name the file by its directory; its base offset comes from its name.
    ``size_bytes``, where a listing has shown it, is checked against the footer. ``suppressed``
    counts what fails of the indexes.

    A mapped file is opened by one read, one on an object store by one of its end (two where the
    footer is very large). Both indexes are looked at when the first lookup needs them.

    Raises:
        NotFoundError: it is gone.
        CorruptRecordError: it is not a segment of this partition, or its footer is damaged.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        name: SegmentName,
        *,
        topic_id: str,
        partition: int,
        size_bytes: int | None = None,
        suppressed: SuppressedErrors = IN_PROCESS,
    ) -> None:
        self._name = name
        self.path = f"{directory}/{name.log}"
        try:
            self._file = open_segment_file(store, self.path, size_bytes)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(f"not a readable Arrow file: {error}") from None
        self._schema = self._file.schema
        self._schema_metadata = self._schema.metadata or {}  # a new dictionary each time
        self._blocks = self._file.blocks
        self._has_deltas = len(self._schema) > len(RECORD_SCHEMA)
        self._check_identity(topic_id, partition)
        self._append_id = self._schema_metadata.get(b"spark_log.append_id", b"")
        self._found = _NO_HEADERS
        indexes = SegmentIndexes(
            store, directory, name, self.append_id, self._blocks, suppressed=suppressed
        )
        self._search = BatchSearch(indexes, is_mapped=store.is_mapped)

    @property
    def base_offset(self) -> int:
        """From the file's name."""
        return self._name.base_offset

    @property
    def batch_count(self) -> int:
        """How many Arrow batches the file holds."""
        return len(self._blocks)

    @cached_property
    def append_id(self) -> str:
        """The file's own identity, drawn by the writer."""
        return self._metadata("append_id")

    @property
    def schema(self) -> pa.Schema:
        """The file's schema, with its metadata."""
        return self._schema

    @property
    def has_gaps(self) -> bool:
        """Whether the records' offsets are a column, since some are missing."""
        return self._has_deltas

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._file.size_bytes

    @cached_property
    def end_offset(self) -> int:
        """The offset after the last one that the file holds (or, compacted, covers).

        At most one read, on an object store, where the last batch is large.
        """
        if self._name.last_offset is not None:
            return self._name.last_offset + 1
        return self.base_offset + self.headers(self.batch_count - 1)[-1].last_offset_delta + 1

    @cached_property
    def max_timestamp_us(self) -> int:
        """The largest timestamp of all records, control records included; reads all headers."""
        latest_us = latest_timestamp_us(
            header for _, headers in self.all_headers() for header in headers
        )
        return NO_TIMESTAMP if latest_us is None else latest_us

    @cached_property
    def min_timestamp_us(self) -> int:
        """The least timestamp of all records; reads the timestamps of all of them."""
        records = self._records(["timestamp"], check=True)
        return min(
            (
                int(times_us.min())
                for ordinal in self._file.in_order(0)
                if (times_us := times_us_of(records(ordinal))).size
            ),
            default=NO_TIMESTAMP,
        )

    def block(self, ordinal: int) -> arrow_ipc.Block:
        """Return where the ``ordinal``-th Arrow batch lies."""
        return self._blocks[ordinal]

    def position(self, ordinal: int) -> int:
        """Return the byte position of the ``ordinal``-th Arrow batch's block."""
        return int(self._blocks.positions[ordinal])

    def compression(self, ordinal: int) -> str:
        """Return how the ``ordinal``-th Arrow batch is compressed: none, lz4 or zstd."""
        try:
            return arrow_ipc.codec(self._file.message(ordinal))
        except ValueError as error:
            raise self._corrupt(str(error), self.position(ordinal)) from None

    def headers(self, ordinal: int) -> tuple[BatchHeader, ...]:
        """Return the batch headers of the ``ordinal``-th Arrow batch, without decoding it."""
        return self._headers(ordinal).headers

    def _headers(self, ordinal: int) -> _Headers:
        if self._found.ordinal != ordinal:
            self._found = self._read_headers(ordinal)
        return self._found

    def _read_headers(self, ordinal: int) -> _Headers:
        try:
            metadata = arrow_ipc.custom_metadata(self._file.message(ordinal))
            value, check = metadata.get(METADATA_KEY), metadata.get(CHECK_KEY)
            if value is None:
                raise ValueError("no batch header")
            sums: tuple[int, ...] = ()
            if check is not None:
                sums = decode_check(check, self._append_id, value, len(self._schema))
            headers = decode_headers(value)
            self._check_headers(ordinal, headers)
            return _Headers(ordinal, headers, check is not None, sums)
        except ValueError as error:
            raise self._corrupt(str(error), self.position(ordinal)) from None

    def all_headers(self) -> Iterator[tuple[int, tuple[BatchHeader, ...]]]:
        """Yield position and headers of every Arrow batch, with few reads."""
        for ordinal in self._file.messages_in_order(0):
            yield self.position(ordinal), self.headers(ordinal)

    def in_order(self) -> Iterator[int]:
        """Yield all ordinals, for `read_batch` of each: on an object store by few reads."""
        return self._file.in_order(0)

    def read_batch(
        self, ordinal: int, *, check_crcs: bool = True
    ) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
        """Return the ``ordinal``-th Arrow batch as it is stored, with its headers.

        Columns are `RECORD_SCHEMA`'s, and ``offset_delta`` behind them if `has_gaps`.

        Raises:
            CorruptRecordError: with file and position.
        """
        records = self._records(RECORD_SCHEMA.names, check=check_crcs)(ordinal)
        return self.headers(ordinal), records

    def forget(self) -> None:
        """Keep no memory of what was read; it is read again where it is needed."""
        self._file.forget()

    def check_follows(
        self, previous: BatchHeader | None, header: BatchHeader, ordinal: int
    ) -> None:
        """Check that a batch begins where the one before it ends; or behind, where gaps may be.

        Args:
            previous: the header before it; None: nothing is known of it.
            header: of the batch.
            ordinal: of the Arrow batch that it is in.

        Raises:
            CorruptRecordError: it does not.
        """
        if previous is None:
            return
        skipped = header.base_offset_delta - previous.last_offset_delta - 1
        if skipped < 0 or (skipped and not self._has_deltas):
            raise self._corrupt(
                "a batch does not begin where the one before it ends", self.position(ordinal)
            )

    def read(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> Iterator[LogBatch]:
        """Yield the records from ``start_offset`` to before ``end_offset``, batch by batch.

        Where the file is not mapped, ranges of it are fetched, and while one is decoded the next
        one. Without checksums Arrow's own structure is validated all the same, down to every
        offset in every buffer (1.5 ns a record), and so are the batch headers and the records'
        offsets: damage is an error or wrong bytes in a value, but never a crash, nor a record less.

        Args:
            start_offset: records before it are left out.
            end_offset: records from it on are left out; None reads to the end of the file.
            columns: only these columns of `RECORD_SCHEMA`, in this order; None for all. Where they
                have no checksums of their own, all are decoded, to check the batch's.
            check_crcs: whether to check what they hold.

        Raises:
            CorruptRecordError: with file and position; what was yielded before it is sound.
            NotFoundError: the file is not mapped, and was deleted meanwhile.
        """
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        records = self._records(wanted, check=check_crcs)
        previous: BatchHeader | None = None
        first, behind = (
            self._search.first(self, start_offset),
            self._search.last(self, end_offset) + 1,
        )
        for ordinal in self._file.in_order(first, behind):
            headers = self.headers(ordinal)
            self.check_follows(previous, headers[0], ordinal)
            if end_offset is not None and self._begin(ordinal) >= end_offset:
                self._check_unread(ordinal)
                return
            previous = headers[-1]
            batch = records(ordinal)
            yield from self._cut(ordinal, headers, batch, start_offset, end_offset)
        # So says the search: by headers that nothing has checked where the file is an older one.
        if behind < self.batch_count and not self._headers(behind - 1).are_checked:
            self._check_unread(behind)

    def offset_for_time(self, timestamp_us: int, start_offset: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time, or None.

        Exactly the first in offset order, also where timestamps go back. By the time index, made
        again where it is not sound, the headers of at most two index intervals are looked at and
        the timestamps of one batch read; more only where ``start_offset`` lies behind what the
        index leads to.

        Args:
            timestamp_us: microseconds since the epoch.
            start_offset: records before it do not count.

        Raises:
            CorruptRecordError: with file and position.
        """
        records = self._records(["timestamp"], check=True)
        first = max(
            self._search.first(self, start_offset), self._search.before_time(self, timestamp_us)
        )
        for ordinal in self._file.messages_in_order(first):
            headers = self.headers(ordinal)
            if max(header.max_timestamp_us for header in headers) < timestamp_us:
                continue
            for batch in self._cut(ordinal, headers, records(ordinal), start_offset, None):
                times_us = times_us_of(batch.records)
                hits = np.flatnonzero(times_us >= timestamp_us)
                if hits.size and not batch.is_control:
                    return int(batch.offsets()[hits[0]]), int(times_us[hits[0]])
        return None

    # --- decoding --------------------------------------------------------------------------------

    def _decoder(self, columns: Sequence[str]) -> Decode:
        try:
            return self._file.decoder(columns)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(str(error)) from None

    def _records(self, columns: Sequence[str], *, check: bool) -> Decode:
        """Return what reads these columns of batches, and ``offset_delta`` behind them if any.

        Args:
            columns: of `RECORD_SCHEMA`.
            check: whether to check what they hold; that the offsets fit is checked in any case.
        """
        stored = [*columns, OFFSET_DELTA_FIELD.name] if self._has_deltas else list(columns)
        decode = self._decoder(stored)
        if not check or set(columns) >= set(RECORD_SCHEMA.names):
            return lambda ordinal: self._decode(decode, ordinal, check=check)
        whole: Decode | None = None

        def read(ordinal: int) -> pa.RecordBatch:
            nonlocal whole
            if self._headers(ordinal).column_sums:
                records = self._decode(decode, ordinal, check=False)
                self._check_columns(ordinal, records)
                return records
            if whole is None:
                whole = self._decoder(self._schema.names)
            return self._decode(whole, ordinal, check=True).select(stored)

        return read

    def _decode(self, decode: Decode, ordinal: int, *, check: bool) -> pa.RecordBatch:
        headers = self.headers(ordinal)
        try:
            records = decode(ordinal)
            # In full: what follows, and every user, trusts the offsets inside the buffers.
            records.validate(full=True)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(
                f"the record batch cannot be decoded: {error}", self.position(ordinal)
            ) from None
        if sum(header.record_count for header in headers) != records.num_rows:
            raise self._corrupt("the batch headers do not cover the rows", self.position(ordinal))
        if self._has_deltas:
            self._check_deltas(ordinal, headers, records.column(OFFSET_DELTA_FIELD.name))
        if check:
            self._check_crcs(ordinal, headers, records)
        return records

    def _check_unread(self, ordinal: int) -> None:
        """Check the offsets of a batch that is passed over because of them.

        Where no check stands beside the headers, that takes its records; and without gaps nothing,
        since offsets that are not what they were do not fit the number of records.
        """
        if self._has_deltas and not self._headers(ordinal).are_checked:
            self.read_batch(ordinal)

    def _check_columns(self, ordinal: int, records: pa.RecordBatch) -> None:
        """Check columns by their own checksums."""
        sums = self._headers(ordinal).column_sums
        for name, column in zip(records.schema.names, records.columns, strict=True):
            try:
                is_right = array_crc32c(column) == sums[self._schema.get_field_index(name)]
            except (ValueError, IndexError, pa.ArrowException) as error:
                raise self._corrupt(
                    f"the column {name} is inconsistent: {error}", self.position(ordinal)
                ) from None
            if not is_right:
                raise self._corrupt(
                    f"checksum of the column {name} does not fit", self.position(ordinal)
                )

    def _check_deltas(self, ordinal: int, headers: Sequence[BatchHeader], column: pa.Array) -> None:
        """Check that offsets rise, and lie where the headers say: where none is missing, all do."""
        deltas = ints_of(column, np.int32)
        ends = np.cumsum([header.record_count for header in headers])
        starts = np.concatenate([[0], ends[:-1]])
        has_rows = starts < ends
        least = np.array([header.base_offset_delta for header in headers])[has_rows]
        most = np.array([header.last_offset_delta for header in headers])[has_rows]
        sums = self._headers(ordinal).column_sums
        if (
            column.null_count
            or (deltas[1:] <= deltas[:-1]).any()
            or (deltas[starts[has_rows]] < least).any()
            or (deltas[ends[has_rows] - 1] > most).any()
            or (sums and array_crc32c(column) != sums[-1])
        ):
            raise self._corrupt(
                "its records' offsets are not those that its headers speak of",
                self.position(ordinal),
            )

    def _check_crcs(
        self, ordinal: int, headers: Sequence[BatchHeader], records: pa.RecordBatch
    ) -> None:
        row = 0
        for header in headers:
            rows = records if len(headers) == 1 else records.slice(row, header.record_count)
            row += header.record_count
            try:
                actual = batch_crc32c(header, rows)
            except (ValueError, IndexError, pa.ArrowException) as error:
                raise self._corrupt(
                    f"the record batch is inconsistent: {error}", self.position(ordinal)
                ) from None
            if actual != header.crc32c:
                raise self._corrupt(
                    f"checksum is {actual:#010x}, the batch header says {header.crc32c:#010x}",
                    self.position(ordinal),
                )

    def _begin(self, ordinal: int) -> int:
        """Return the first offset of an Arrow batch."""
        return self.base_offset + self.headers(ordinal)[0].base_offset_delta

    def _cut(
        self,
        ordinal: int,
        headers: Sequence[BatchHeader],
        records: pa.RecordBatch,
        start_offset: int,
        end_offset: int | None,
    ) -> Iterator[LogBatch]:
        return cut_batches(
            headers,
            records,
            segment_base_offset=self.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            stored_bytes=self._blocks[ordinal].body_bytes,
        )

    # --- checking --------------------------------------------------------------------------------

    def _check_identity(self, topic_id: str, partition: int) -> None:
        metadata = self._schema_metadata
        if metadata.get(b"spark_log.format") != FORMAT_VERSION.encode():
            raise self._corrupt(
                f"segment format {self._metadata('format')!r}, this version reads "
                f"{FORMAT_VERSION!r}"
            )
        if (
            metadata.get(b"spark_log.topic_id") != topic_id.encode()
            or metadata.get(b"spark_log.partition") != b"%d" % partition
        ):
            owner = (self._metadata("topic_id"), self._metadata("partition"))
            raise self._corrupt(f"belongs to topic id and partition {owner}, not to this one")
        if not self._schema.equals(_GAPPED_SCHEMA if self._has_deltas else RECORD_SCHEMA):
            raise self._corrupt("its columns are not a segment's")
        if not self._blocks:
            raise self._corrupt("has no record batches")
        name = metadata.get(b"spark_log.name")
        if name is not None and name != self._name.stem.encode():
            name = self._metadata("name")
            raise self._corrupt(f"was written as {name}.log, and has another name now")

    def _check_headers(self, ordinal: int, headers: Sequence[BatchHeader]) -> None:
        """Check what checksums cannot: headers tell the log's end, and their records stay unread.

        Raises:
            ValueError: the headers of a batch do not fit each other or their file.
        """
        previous: BatchHeader | None = None
        for header in headers:
            if header.record_count < 0 or (header.has_gaps and not self._has_deltas):
                raise ValueError("a batch header's offsets do not fit its record count")
            self.check_follows(previous, header, ordinal)
            previous = header
        if ordinal == 0 and headers[0].base_offset_delta and not self._has_deltas:
            raise ValueError("the first batch does not begin at the segment's base offset")
        if self._name.last_offset is not None:
            left = self._name.last_offset - self.base_offset - headers[-1].last_offset_delta
            if left < 0:
                raise ValueError("the batch reaches beyond the last offset in the file's name")
            if left and not self._has_deltas and ordinal == self.batch_count - 1:
                raise ValueError("the last batch ends before the last offset in the file's name")

    def _metadata(self, key: str) -> str:
        value: bytes = self._schema_metadata.get(f"spark_log.{key}".encode(), b"")
        return value.decode("utf-8", "replace")

    def _corrupt(self, reason: str, position: int = -1) -> CorruptRecordError:
        where = f"{self.path}, position {position}" if position >= 0 else self.path
        return CorruptRecordError(
            f"{where}: {reason}. Restore the file from a copy, or read past it by seeking",
            path=self.path,
            position=position,
        )
