"""A segment: an immutable Arrow IPC file of record batches, read by offset and by time.

On storage: Arrow's file format with the schema of `record.schema`, one or more batch headers in
the ``custom_metadata`` of every Arrow batch, and optionally Arrow's buffer compression. Offsets
are relative to the base offset in the file's *name*; the file itself does not know it. A crash
while writing leaves a temporary file that no listing shows; a segment is complete or not there.
`log.segment_writer` writes it, `log.segment_file` fetches its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.batch_search import BatchSearch
from spark_log.log.file_names import SegmentName
from spark_log.log.log_batch import LogBatch, cut_batches
from spark_log.log.segment_file import Decode, open_segment_file
from spark_log.log.segment_indexes import SegmentIndexes
from spark_log.record import arrow_ipc
from spark_log.record.arrays import times_us_of
from spark_log.record.batch_header import (
    METADATA_KEY,
    NO_TIMESTAMP,
    BatchHeader,
    decode_headers,
    latest_timestamp_us,
)
from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import (
    FORMAT_VERSION,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
)
from spark_log.storage import Store

__all__ = ["LogBatch", "SegmentReader"]

_GAPPED_SCHEMA = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)


class SegmentReader:
    """A segment file, opened: batches by offset and by time.

    Args to the constructor name the file by its directory; its base offset comes from its name.
    ``size_bytes``, where a listing has shown it, is checked against the footer.

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
        self._headers: tuple[int, tuple[BatchHeader, ...]] = (-1, ())
        indexes = SegmentIndexes(store, directory, name, self.append_id, self._blocks)
        self._search = BatchSearch(indexes, is_mapped=store.is_mapped)

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
        return min(
            (
                int(times_us.min())
                for ordinal in self._file.in_order(0)
                if (times_us := times_us_of(self._records(ordinal, ["timestamp"]))).size
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
        if self._headers[0] != ordinal:
            self._headers = ordinal, self._read_headers(ordinal)
        return self._headers[1]

    def _read_headers(self, ordinal: int) -> tuple[BatchHeader, ...]:
        try:
            value = arrow_ipc.read_custom_metadata(self._file.message(ordinal), METADATA_KEY)
            if value is None:
                raise ValueError("no batch header")
            headers = decode_headers(value)
            self._check_headers(ordinal, headers)
            return headers
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
        headers = self.headers(ordinal)
        records = self._decode(
            self._decoder(self._schema.names), ordinal, headers, check=check_crcs
        )
        return headers, records

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
        offset in every buffer (1.5 ns a record), so that damage is an error or wrong bytes in a
        value, but never a crash.

        Args:
            start_offset: records before it are left out.
            end_offset: records from it on are left out; None reads to the end of the file.
            columns: only these columns of `RECORD_SCHEMA`, in this order; None for all. Checksums
                cover all columns, so that they are checked only when all are read.
            check_crcs: whether to check them.

        Raises:
            CorruptRecordError: with file and position; what was yielded before it is sound.
            NotFoundError: the file is not mapped, and was deleted meanwhile.
        """
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        check = check_crcs and set(wanted) >= set(RECORD_SCHEMA.names)
        decode = self._decoder([*wanted, OFFSET_DELTA_FIELD.name] if self._has_deltas else wanted)
        previous: BatchHeader | None = None
        first, behind = (
            self._search.first(self, start_offset),
            self._search.last(self, end_offset) + 1,
        )
        for ordinal in self._file.in_order(first, behind):
            headers = self.headers(ordinal)
            self.check_follows(previous, headers[0], ordinal)
            previous = headers[-1]
            begin = self.base_offset + headers[0].base_offset_delta
            if end_offset is not None and begin >= end_offset:
                return
            yield from self._cut(
                ordinal,
                headers,
                self._decode(decode, ordinal, headers, check=check),
                start_offset,
                end_offset,
            )

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
        stored = ["timestamp", OFFSET_DELTA_FIELD.name] if self._has_deltas else ["timestamp"]
        decode = self._decoder(stored)
        first = max(
            self._search.first(self, start_offset), self._search.before_time(self, timestamp_us)
        )
        for ordinal in self._file.messages_in_order(first):
            headers = self.headers(ordinal)
            if max(header.max_timestamp_us for header in headers) < timestamp_us:
                continue
            records = self._decode(decode, ordinal, headers, check=False)
            for batch in self._cut(ordinal, headers, records, start_offset, None):
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

    def _records(self, ordinal: int, columns: Sequence[str]) -> pa.RecordBatch:
        decode = self._decoder(columns)
        return self._decode(decode, ordinal, self.headers(ordinal), check=False)

    def _decode(
        self, decode: Decode, ordinal: int, headers: Sequence[BatchHeader], *, check: bool
    ) -> pa.RecordBatch:
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
        if check:
            self._check_crcs(ordinal, headers, records)
        return records

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
            self.check_follows(previous, header, ordinal)
            previous = header
        if self._name.last_offset is None:
            if ordinal == 0 and headers[0].base_offset_delta:
                raise ValueError("the first batch does not begin at the segment's base offset")
        elif self.base_offset + headers[-1].last_offset_delta > self._name.last_offset:
            raise ValueError("the batch reaches beyond the last offset in the file's name")

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
