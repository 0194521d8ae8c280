"""A segment: an immutable Arrow IPC file of record batches, read by offset and by time.

On storage: Arrow's file format with the schema of `record.schema`, one or more batch headers in
the ``custom_metadata`` of every Arrow batch, and optionally Arrow's buffer compression. Offsets
are relative to the base offset in the file's *name*; a plain segment does not contain it. A crash
of a writer leaves a temporary file that no listing shows, so a segment is always complete.
`segment.writer` writes it. Here it is read: `segment.file` has its bytes, mapped or in ranges,
`segment.arrow_batches` decodes and checks them, `segment.batch_pruning` skips what a read does not
need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.arrow_batches import ArrowBatches, corrupt_segment
from spark_log.log.segment.file import (
    ColumnStatistics,
    LeftOutColumns,
    RowStatistics,
    SegmentFile,
    mapped_segment_file,
    open_segment_file,
)
from spark_log.log.segment.log_batch import IsAborted, LogBatch, cut_batches
from spark_log.record import (
    FORMAT_VERSION,
    NO_TIMESTAMP,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    FileTemplate,
    SmallBatch,
    SmallFile,
    arrow_ipc,
    latest_timestamp_us,
    times_us_of,
)
from spark_log.storage import Store
from spark_log.util import IN_PROCESS, SuppressedErrors, lazy, one_line

if TYPE_CHECKING:
    from spark_log.log.segment.batch_pruning import BatchPruning

MOST_SMALL_FILE_BYTES = 20_480
"""Size of a file from which on it has no small batch: the batch has less than 16 KiB."""

_READER_BYTES = 4_096
"""Approximate memory of an open segment, without its content."""

_GAPPED_SCHEMA = RECORD_SCHEMA.append(OFFSET_DELTA_FIELD)


class SegmentReader:
    """An open segment file, read by offset and by time.

    Opening it maps the file into memory; on an object store it reads the end of the file by one
    request, or two if the footer is very large. The indexes are read by the first lookup that needs
    them.

    Attributes:
        path: the segment file's path, relative to the store's root.
        small: the whole content of a file that the template has read; None for other files.
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
        template: FileTemplate | None = None,
    ) -> None:
        """Open a segment.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: parsed name of its file.
            topic_id: the topic's id; the file must have the same.
            partition: number of the partition; the file must have the same.
            size_bytes: the file's size in a listing, checked against the footer; None if not known.
            suppressed: counter of errors of the indexes, which fail no read.
            template: the template of small files of this partition, for a plain segment on a mapped
                store. A file that it reads is not opened by Arrow, unless a method needs that.

        Raises:
            NotFoundError: the file does not exist.
            CorruptRecordError: the file is not a segment of this partition, or its footer is
                damaged.
        """
        self._name = name
        self.path = f"{directory}/{name.file_name}"
        self._store, self._directory, self._suppressed = store, directory, suppressed
        self._size_bytes = size_bytes
        self._buffer: pa.Buffer | None = None
        self.small: SmallFile | None = None
        if template is not None:
            self._buffer = store.open_buffer(self.path)
            if self._buffer.size < MOST_SMALL_FILE_BYTES:
                self.small = template.read(self._buffer.to_pybytes())
        if self.small is None:
            self._check_identity(topic_id, partition)

    @lazy
    def _file(self) -> SegmentFile:
        try:
            if self._buffer is not None:
                return mapped_segment_file(self._store, self._buffer)
            if self._name.is_parquet:
                # Late: clients without tables start without it.
                from spark_log.log.segment.parquet import open_parquet_file

                return open_parquet_file(self._store, self.path, self._name, self._size_bytes)
            return open_segment_file(self._store, self.path, self._size_bytes)
        except (ValueError, OSError, pa.ArrowException) as error:
            kind = "a Parquet segment" if self._name.is_parquet else "a readable Arrow file"
            raise self._corrupt(f"it is not {kind}: {error}") from None

    @lazy
    def _schema(self) -> pa.Schema:
        return self._file.schema

    @lazy
    def _schema_metadata(self) -> Mapping[bytes, bytes]:
        return self._schema.metadata or {}  # a new dictionary each time

    @lazy
    def _batches(self) -> ArrowBatches:
        append_id = self._schema_metadata.get(b"spark_log.append_id", b"")
        return ArrowBatches(self._file, self.path, self._name, append_id)

    @lazy
    def _pruning(self) -> BatchPruning:
        # A late import: a process that only appends does not need it.
        from spark_log.log.segment.batch_pruning import BatchPruning

        return BatchPruning(
            self._store,
            self._directory,
            self._name,
            self._file,
            self._batches,
            self.append_id,
            self._suppressed,
        )

    def __repr__(self) -> str:
        return f"<SegmentReader path={self.path!r} batches={self.batch_count}>"

    @property
    def base_offset(self) -> int:
        """Base offset, from the file's name."""
        return self._name.base_offset

    @property
    def batch_count(self) -> int:
        """Number of Arrow batches in the file."""
        return len(self._file.blocks) if self.small is None else 1

    @lazy
    def append_id(self) -> str:
        """Random id of this file, from its writer (docs/adr/0003)."""
        small = self.small
        return self._metadata("append_id") if small is None else small.append_id.decode()

    @property
    def compaction_id(self) -> str:
        """Random id of the compaction that read all keys and wrote this segment.

        Empty if no compaction wrote the segment, or a compaction of an earlier version wrote it.
        """
        return self._metadata("compaction_id")

    @lazy
    def timestamp_types(self) -> tuple[int, ...]:
        """Timestamp types of the records: 0 for create time, 1 for log append time.

        A Parquet segment has them in its footer; in an Arrow file all headers are read.
        """
        if self._name.is_parquet:
            return tuple(map(int, filter(None, self._metadata("timestamp_types").split(","))))
        return tuple(sorted({kind for _, _, kind in self.timestamp_type_ranges()}))

    @property
    def leaves_values_out(self) -> bool:
        """Whether values may be missing in the file, since its typed columns give them.

        `read` returns them. Other readers of the file find nulls.
        """
        return self._file.left_out is not None

    @property
    def left_out(self) -> LeftOutColumns | None:
        """Columns of the values that a Parquet segment leaves out; None if it has all values."""
        return self._file.left_out

    def timestamp_type_ranges(self) -> list[tuple[int, int, int]]:
        """Return the offset ranges in which all records have one timestamp type. Reads all headers.

        Returns:
            The first offset of each range, the offset after its last, and the type, in order.
        """
        headers = self.header_array()
        is_control = headers["attributes"] & BatchHeader.CONTROL_BIT != 0
        headers = headers[(headers["record_count"] > 0) & ~is_control]
        types = (headers["attributes"] & BatchHeader.TIMESTAMP_TYPE_BIT != 0).astype(int)
        firsts = [0, *(np.flatnonzero(np.diff(types)) + 1).tolist()] if len(types) else []
        starts = [self.base_offset + int(headers["base_offset_delta"][at]) for at in firsts]
        return [
            (start, end, int(types[at]))
            for at, start, end in zip(firsts, starts, [*starts[1:], self.end_offset], strict=False)
        ]

    def to_arrow(self) -> pa.NativeFile:
        """Return the bytes of a Parquet segment, for pyarrow's reader.

        Raises:
            TypeError: the segment is an Arrow file.
        """
        return self._file.to_arrow()

    @property
    def schema(self) -> pa.Schema:
        """The file's schema, with its metadata."""
        return self._schema

    @property
    def has_gaps(self) -> bool:
        """Whether the file has the column ``offset_delta``, since some offsets are missing."""
        return self.small is None and self._batches.has_deltas

    def row_statistics(self) -> RowStatistics:
        """Return the statistics of the rows of a Parquet segment, from its footer."""
        return self._file.row_statistics()

    def column_statistics(self) -> list[ColumnStatistics]:
        """Return the statistics of the typed columns of a Parquet segment, from its footer.

        Floating-point columns of values that may have NaN are read.
        """
        return self._file.column_statistics()

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._file.size_bytes if self._buffer is None else int(self._buffer.size)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that the reader holds. Pages of a mapped file do not count."""
        if self.small is not None:
            return _READER_BYTES + 2 * self.size_bytes
        return _READER_BYTES + self._file.memory_bytes

    @property
    def is_in_memory(self) -> bool:
        """Whether reading makes no request: the file is mapped, or was read whole on opening."""
        return self.small is not None or self._file.is_in_memory

    @lazy
    def end_offset(self) -> int:
        """The offset after the last one that the segment contains or, if rewritten, covers.

        On an object store this may take one request, if the last batch is large.
        """
        if self._name.last_offset is not None:
            return self._name.last_offset + 1
        return self.base_offset + self.headers(self.batch_count - 1)[-1].last_offset_delta + 1

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the last batch. On an object store this may take one request."""
        return self.headers(self.batch_count - 1)[-1].leader_epoch

    @lazy
    def max_timestamp_us(self) -> int:
        """The largest timestamp of all records, control records included. Reads all headers."""
        latest_us = latest_timestamp_us(
            header for _, headers in self.all_headers() for header in headers
        )
        return NO_TIMESTAMP if latest_us is None else latest_us

    @lazy
    def min_timestamp_us(self) -> int:
        """The smallest timestamp of all records. Reads the timestamps of all of them."""
        records = self._batches.decoder(["timestamp"], check=True)
        return min(
            (
                int(times_us.min())
                for ordinal in self._file.in_order(0)
                if (times_us := times_us_of(records(ordinal))).size
            ),
            default=NO_TIMESTAMP,
        )

    def block(self, ordinal: int) -> arrow_ipc.Block:
        """Return the position and size of the ``ordinal``-th Arrow batch."""
        return self._file.blocks[ordinal]

    def position(self, ordinal: int) -> int:
        """Return the byte position of the ``ordinal``-th Arrow batch's block."""
        return int(self._file.blocks.positions[ordinal])

    def compression(self, ordinal: int) -> str:
        """Return the compression of the ``ordinal``-th Arrow batch: none, lz4 or zstd."""
        if self.small is not None:
            return self.small.compression
        try:
            return self._file.compression(ordinal)
        except ValueError as error:
            raise self._batches.corrupt(str(error), ordinal) from None

    def headers(self, ordinal: int) -> tuple[BatchHeader, ...]:
        """Return the batch headers of the ``ordinal``-th Arrow batch, without decoding it."""
        if self.small is not None:
            return (self.small.header,)
        return self._batches.headers(ordinal).headers

    @property
    def has_header_checks(self) -> bool:
        """Whether the first batch has a check of its headers; files of earlier versions have none.

        On an object store this may take one request.
        """
        return self.small is not None or self._batches.headers(0).are_checked

    def all_headers(self) -> Iterator[tuple[int, tuple[BatchHeader, ...]]]:
        """Yield position and headers of every Arrow batch; on an object store by few requests."""
        if self.small is not None:
            yield self.small.position, self.headers(0)
            return
        for ordinal in self._file.messages_in_order(0):
            yield self.position(ordinal), self.headers(ordinal)

    def header_array(self) -> np.ndarray:
        """Return all batch headers as an array of `HEADER_DTYPE`, 53 bytes each.

        On an object store this makes few requests. It is for searches among many headers: it takes
        a tenth of the time of `all_headers`, and does not check headers against each other.

        Raises:
            CorruptRecordError: a header is damaged; has file and position.
        """
        return np.concatenate(
            [self._batches.header_array(each) for each in self._file.messages_in_order(0)]
        )

    def in_order(self) -> Iterator[int]:
        """Yield all ordinals, to call `read_batch` of each; on an object store by few requests."""
        return self._file.in_order(0) if self.small is None else iter((0,))

    def read_batch(
        self, ordinal: int, *, check_crcs: bool = True
    ) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
        """Return headers and rows of the ``ordinal``-th Arrow batch as it is stored.

        The columns are those of `RECORD_SCHEMA`, and ``offset_delta`` behind them if `has_gaps`.

        Raises:
            CorruptRecordError: the batch is damaged; has file and position.
        """
        if self.small is not None:
            return self.headers(ordinal), self.small.batch.records()
        names = RECORD_SCHEMA.names
        records = self._batches.decoder(names, check=check_crcs, each_batch=True)(ordinal)
        return self.headers(ordinal), records

    def read_keys(self, ordinal: int) -> tuple[tuple[BatchHeader, ...], pa.Array]:
        """Return headers and keys of the ``ordinal``-th Arrow batch, control records included.

        Raises:
            CorruptRecordError: the batch is damaged; has file and position.
        """
        records = self._batches.decoder(["key"], check=True)(ordinal)
        return self.headers(ordinal), records.column("key")

    def find_pages(self) -> np.ndarray:
        """Return the pages of a Parquet segment, for `read_row`.

        On an object store this may take one request for each column chunk, if the footer is large.

        Raises:
            CorruptRecordError: the page index is damaged.
        """
        try:
            return self._file.find_pages()
        except ValueError as error:
            raise self._corrupt(f"its page index cannot be read: {error}") from None

    def read_row(self, row: int, pages: np.ndarray) -> tuple[int, pa.RecordBatch]:
        """Return the offset and the columns of a row of a Parquet segment, by few pages.

        The checksums of the pages are checked, those of batches and columns are not: they cover
        whole row groups.

        Args:
            row: the row's number; control records are not counted.
            pages: what `find_pages` returned.

        Returns:
            The offset, and a batch of one row with the columns of `RECORD_SCHEMA`.

        Raises:
            CorruptRecordError: a page is damaged.
        """
        try:
            delta, record = self._file.read_row(row, pages)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(f"row {row} cannot be read: {error}") from None
        return self.base_offset + delta, record

    def problem_for_others(self, ordinal: int) -> str | None:
        """Return the problem of the ``ordinal``-th Arrow batch that only other programs would meet.

        None if there is none, and in an Arrow file, where no part is for them alone.
        """
        try:
            return self._file.problem_for_others(ordinal)
        except (ValueError, OSError, pa.ArrowException) as error:
            return f"cannot be decoded: {one_line(error)}"

    def forget(self) -> None:
        """Release the memory of data that was read. It is read again if it is needed."""
        if self.small is None:
            self._file.forget()

    def check_follows(
        self, previous: BatchHeader | None, header: BatchHeader, ordinal: int
    ) -> None:
        """Check that a batch begins where the one before it ends, or later if gaps are allowed.

        Args:
            previous: the header before it; None checks nothing.
            header: the batch's header.
            ordinal: number of the Arrow batch that contains the batch.

        Raises:
            CorruptRecordError: the batch begins at another offset.
        """
        if previous is not None:
            self._batches.check_follows(previous, header, ordinal)

    def read(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        is_aborted: IsAborted | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the records from ``start_offset`` to before ``end_offset``, batch by batch.

        A file that is not mapped is read in ranges: while one range is decoded, the next one is
        read.

        Without checksums, the structure of Arrow batches is validated all the same, down to every
        offset in every buffer (1.5 ns per record), and so are batch headers and the records'
        offsets. Damage then raises an error or changes bytes in a value; it never crashes the
        process and never loses a record.

        Args:
            start_offset: records before it are left out.
            end_offset: records at and after it are left out; None reads to the end of the file.
            columns: columns of `RECORD_SCHEMA`, in this order; None for all. If the file has no
                checksums of single columns, all columns are decoded to check that of the batch.
            check_crcs: whether to check checksums.
            is_aborted: function of a batch header and the batch's base offset, which returns
                whether the batch was aborted; None leaves `LogBatch.is_aborted` False.

        Raises:
            CorruptRecordError: a batch is damaged; has file and position. Records yielded before
                are valid.
            NotFoundError: the file is not mapped, and was deleted meanwhile.
        """
        small = self.small
        if small is not None and columns is None:  # it was checked when it was opened
            yield from self._cut(
                0, self.headers(0), small.batch, start_offset, end_offset, is_aborted
            )
            return
        wanted = list(RECORD_SCHEMA.names if columns is None else columns)
        records = self._batches.decoder(wanted, check=check_crcs)
        previous: BatchHeader | None = None
        needed = self._pruning.needed(start_offset, end_offset)
        for ordinal in self._file.in_order(needed.start, needed.stop):
            headers = self.headers(ordinal)
            self.check_follows(previous, headers[0], ordinal)
            if end_offset is not None and self._base_offset_of(ordinal) >= end_offset:
                self._batches.check_skipped(ordinal)
                return
            previous = headers[-1]
            batch = records(ordinal)
            yield from self._cut(ordinal, headers, batch, start_offset, end_offset, is_aborted)
        # Headers decided which batches are skipped. In a file of an earlier version nothing has
        # checked them.
        behind = needed.stop
        if behind < self.batch_count and not self._batches.headers(behind - 1).are_checked:
            self._batches.check_skipped(behind)

    def offset_for_time(self, timestamp_us: int, start_offset: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        This is the first such record in offset order, also if timestamps are not in order. With the
        time index, which is rebuilt if it is not valid, the lookup reads the headers of at most two
        index intervals and the timestamps of one batch. It reads more only if ``start_offset`` lies
        behind the position that the index gives.

        Args:
            timestamp_us: microseconds since the epoch.
            start_offset: records before it are ignored.

        Raises:
            CorruptRecordError: a batch is damaged; has file and position.
        """
        records = self._batches.decoder(["timestamp"], check=True)
        needed = self._pruning.needed(start_offset, from_us=timestamp_us)
        for ordinal in self._file.messages_in_order(needed.start):
            headers = self.headers(ordinal)
            if max(header.max_timestamp_us for header in headers) < timestamp_us:
                continue
            for batch in self._cut(ordinal, headers, records(ordinal), start_offset, None):
                times_us = times_us_of(batch.records)
                hits = np.flatnonzero(times_us >= timestamp_us)
                if hits.size and not batch.is_control:
                    return int(batch.offsets()[hits[0]]), int(times_us[hits[0]])
        return None

    def ranges_in_time(self, times_us: tuple[int, int]) -> list[tuple[int, int]] | None:
        """Return the ranges of offsets whose Arrow batches may have records between two times.

        Args:
            times_us: the first timestamp and the one after the last, microseconds.

        Returns:
            First offset and the offset after the last of each range, in order. None if the footer
            of the file does not tell.
        """
        return self._pruning.ranges_in_time(times_us, self.end_offset)

    def _base_offset_of(self, ordinal: int) -> int:
        """Return the base offset of an Arrow batch."""
        return self.base_offset + self.headers(ordinal)[0].base_offset_delta

    def _cut(
        self,
        ordinal: int,
        headers: Sequence[BatchHeader],
        records: pa.RecordBatch | SmallBatch,
        start_offset: int,
        end_offset: int | None,
        is_aborted: IsAborted | None = None,
    ) -> Iterator[LogBatch]:
        if isinstance(records, SmallBatch):
            assert self.small is not None
            stored_bytes = self.small.body_bytes
        elif self._name.is_parquet:
            # Compressed Parquet would let a fetch take ten times the memory that it may.
            stored_bytes = records.nbytes
        else:
            stored_bytes = self._file.blocks[ordinal].body_bytes
        return cut_batches(
            headers,
            records,
            segment_base_offset=self.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            stored_bytes=stored_bytes,
            is_aborted=is_aborted,
        )

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
            raise self._corrupt(f"it belongs to topic id and partition {owner}, not to this one")
        if not self._schema.equals(_GAPPED_SCHEMA if self.has_gaps else RECORD_SCHEMA):
            raise self._corrupt("its columns are not a segment's")
        if not self._file.blocks:
            raise self._corrupt("it has no record batches")
        written = metadata.get(b"spark_log.name")
        if written is not None and written != self._name.stem.encode():
            suffix = self._name.file_name.removeprefix(self._name.stem)
            name = f"{self._metadata('name')}{suffix}"
            raise self._corrupt(f"it was written as {name}, and has another name now")

    def _metadata(self, key: str) -> str:
        value: bytes = self._schema_metadata.get(f"spark_log.{key}".encode(), b"")
        return value.decode("utf-8", "replace")

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return corrupt_segment(self.path, reason)
