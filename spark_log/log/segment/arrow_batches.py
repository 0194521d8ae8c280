"""The Arrow batches of a segment file: their headers and their rows, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.file import Decode, SegmentFile
from spark_log.record import (
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    SmallBatch,
    array_crc32c,
    batch_crc32c,
    header_array,
    ints_of,
    unpack_headers,
)
from spark_log.util import one_line


class BatchHeaders(NamedTuple):
    """The batch headers of an Arrow batch, and the content of the check beside them.

    Attributes:
        ordinal: the Arrow batch's number in the file.
        headers: the batch headers, in the order of the rows.
        are_checked: whether the batch has a check of its headers (docs/adr/0017), which files of
            earlier versions lack.
        column_sums: checksum of each column of the file; empty if the batch has none.
    """

    ordinal: int
    headers: tuple[BatchHeader, ...]
    are_checked: bool
    column_sums: tuple[int, ...]


_NO_HEADERS: Final = BatchHeaders(-1, (), False, ())


class ArrowBatches:
    """Reads the Arrow batches of a segment file. It keeps the headers of the last one.

    Headers are checked against each other and against the file's name. Each decoded batch is
    validated in full by Arrow, and its number of rows and their offsets are checked against its
    headers. Damage raises `CorruptRecordError`, or, without checksums, changes bytes in a value. It
    never crashes the process and never loses a record.

    Attributes:
        has_deltas: whether the file has the column ``offset_delta``, as one that lacks offsets.
    """

    def __init__(self, file: SegmentFile, path: str, name: SegmentName, append_id: bytes) -> None:
        """Read nothing yet.

        Args:
            file: the segment's file.
            path: the file's path, for error messages.
            name: parsed name of the file.
            append_id: the segment's append id.
        """
        self.has_deltas = len(file.schema) > len(RECORD_SCHEMA)
        self._file = file
        self._path = path
        self._name = name
        self._append_id = append_id
        self._schema = file.schema
        self._last = _NO_HEADERS

    def headers(self, ordinal: int) -> BatchHeaders:
        """Return the headers of an Arrow batch, without decoding it.

        Raises:
            CorruptRecordError: the headers are damaged; has file and position.
        """
        if self._last.ordinal != ordinal:
            self._last = self._read_headers(ordinal)
        return self._last

    def header_array(self, ordinal: int) -> np.ndarray:
        """Return the headers of an Arrow batch as an array of `HEADER_DTYPE`.

        The headers are checked by their header check alone, not against each other.

        Raises:
            CorruptRecordError: the headers are damaged; has file and position.
        """
        try:
            return header_array(self._file.packed_headers(ordinal, self._append_id).headers)
        except ValueError as error:
            raise self.corrupt(str(error), ordinal) from None

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
        if previous is None:
            return
        skipped = header.base_offset_delta - previous.last_offset_delta - 1
        if skipped < 0 or (skipped and not self.has_deltas):
            raise self.corrupt("a batch does not begin where the one before it ends", ordinal)

    def decoder(self, columns: Sequence[str], *, check: bool, each_batch: bool = False) -> Decode:
        """Return a function that decodes batches to these columns, and ``offset_delta`` if stored.

        Args:
            columns: names of columns of `RECORD_SCHEMA`.
            check: whether to check checksums. Columns without a checksum of their own are checked
                by that of the batch, for which all columns are decoded.
            each_batch: whether all columns together are checked by the checksum of each batch, also
                in a Parquet file. There the checksums of the columns are enough for a read: they
                tell the same, and are fewer.

        Raises:
            CorruptRecordError: the file is damaged. The function raises it with file and position.
        """
        stored = [*columns, OFFSET_DELTA_FIELD.name] if self.has_deltas else list(columns)
        decode = self._decoder(stored)
        checks_columns = self._name.is_parquet and not each_batch
        if not check or (set(columns) >= set(RECORD_SCHEMA.names) and not checks_columns):
            return lambda ordinal: self._decode(decode, ordinal, check=check)
        whole: Decode | None = None

        def read(ordinal: int) -> pa.RecordBatch:
            nonlocal whole
            if self.headers(ordinal).column_sums:
                records = self._decode(decode, ordinal, check=False)
                self._check_columns(ordinal, records)
                return records
            if whole is None:
                whole = self._decoder(self._schema.names)
            return self._decode(whole, ordinal, check=True).select(stored)

        return read

    def check_skipped(self, ordinal: int) -> None:
        """Check the offsets of a batch that a read skips by these offsets.

        If its headers have no check of their own, this reads its records. In a file without gaps
        there is nothing to check: wrong offsets would not fit the number of records.

        Raises:
            CorruptRecordError: the batch is damaged.
        """
        if self.has_deltas and not self.headers(ordinal).are_checked:
            self.decoder(RECORD_SCHEMA.names, check=True)(ordinal)

    def corrupt(self, reason: str, ordinal: int | None = None) -> CorruptRecordError:
        """Return the error for a damaged file, or for an Arrow batch of it."""
        position = -1 if ordinal is None else int(self._file.blocks.positions[ordinal])
        return corrupt_segment(self._path, reason, position)

    def _read_headers(self, ordinal: int) -> BatchHeaders:
        try:
            packed = self._file.packed_headers(ordinal, self._append_id)
            headers = unpack_headers(packed.headers)
            self._check_headers(ordinal, headers)
            return BatchHeaders(ordinal, headers, packed.are_checked, packed.column_sums)
        except ValueError as error:
            raise self.corrupt(str(error), ordinal) from None

    def _check_headers(self, ordinal: int, headers: Sequence[BatchHeader]) -> None:
        """Check the offsets of headers, which decide where the log ends before records are read.

        Raises:
            ValueError: the headers of a batch do not fit each other or their file.
        """
        previous: BatchHeader | None = None
        for header in headers:
            if header.record_count < 0 or (header.has_gaps and not self.has_deltas):
                raise ValueError("a batch header's offsets do not fit its record count")
            self.check_follows(previous, header, ordinal)
            previous = header
        if ordinal == 0 and headers[0].base_offset_delta and not self.has_deltas:
            raise ValueError("the first batch does not begin at the segment's base offset")
        if self._name.last_offset is not None:
            left = self._name.last_offset - self._name.base_offset - headers[-1].last_offset_delta
            if left < 0:
                raise ValueError("the batch reaches beyond the last offset in the file's name")
            if left and not self.has_deltas and ordinal == len(self._file.blocks) - 1:
                raise ValueError("the last batch ends before the last offset in the file's name")

    def _decoder(self, columns: Sequence[str]) -> Decode:
        try:
            return self._file.decoder(columns)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self.corrupt(str(error)) from None

    def _decode(self, decode: Decode, ordinal: int, *, check: bool) -> pa.RecordBatch:
        headers = self.headers(ordinal).headers
        try:
            records = decode(ordinal)
            # In full: all code below, and every user, trusts the offsets inside the buffers.
            records.validate(full=True)
        except (ValueError, OSError, pa.ArrowException) as error:
            reason = f"the record batch cannot be decoded: {one_line(error)}"
            raise self.corrupt(reason, ordinal) from None
        if sum(header.record_count for header in headers) != records.num_rows:
            raise self.corrupt("the batch headers do not cover the rows", ordinal)
        if self.has_deltas:
            self._check_deltas(ordinal, headers, records.column(OFFSET_DELTA_FIELD.name))
        if check:
            self.check_crcs(ordinal, headers, records)
        return records

    def _check_columns(self, ordinal: int, records: pa.RecordBatch) -> None:
        """Check columns by their own checksums."""
        sums = self.headers(ordinal).column_sums
        for name, column in zip(records.schema.names, records.columns, strict=True):
            try:
                is_right = array_crc32c(column) == sums[self._schema.get_field_index(name)]
            except (ValueError, IndexError, pa.ArrowException) as error:
                raise self.corrupt(f"the column {name} is inconsistent: {error}", ordinal) from None
            if not is_right:
                raise self.corrupt(f"checksum of the column {name} does not fit", ordinal)

    def _check_deltas(self, ordinal: int, headers: Sequence[BatchHeader], column: pa.Array) -> None:
        """Check that offsets are ascending, and within the range of their header."""
        deltas = ints_of(column, np.int32)
        ends = np.cumsum([header.record_count for header in headers])
        starts = np.concatenate([[0], ends[:-1]])
        has_rows = starts < ends
        least = np.array([header.base_offset_delta for header in headers])[has_rows]
        most = np.array([header.last_offset_delta for header in headers])[has_rows]
        sums = self.headers(ordinal).column_sums
        if (
            column.null_count
            or (deltas[1:] <= deltas[:-1]).any()
            or (deltas[starts[has_rows]] < least).any()
            or (deltas[ends[has_rows] - 1] > most).any()
            or (sums and array_crc32c(column) != sums[-1])
        ):
            raise self.corrupt(
                "its records' offsets are not those that its headers speak of", ordinal
            )

    def check_crcs(
        self,
        ordinal: int,
        headers: Sequence[BatchHeader],
        records: pa.RecordBatch,
        small: Sequence[SmallBatch | None] = (),
    ) -> None:
        """Check the checksums of the batches in an Arrow batch.

        Args:
            ordinal: number of the Arrow batch.
            headers: the header of each batch.
            records: the rows of all of them.
            small: the records of each batch that is small, which is faster; empty if none is known.

        Raises:
            CorruptRecordError: a checksum does not fit; has file and position.
        """
        row = 0
        for header, content in zip_longest(headers, small):
            first, row = row, row + header.record_count
            try:
                if content is not None:
                    actual = content.crc32c(header)
                else:
                    is_whole = len(headers) == 1
                    rows = records if is_whole else records.slice(first, header.record_count)
                    actual = batch_crc32c(header, rows)
            except (ValueError, IndexError, pa.ArrowException) as error:
                raise self.corrupt(f"the record batch is inconsistent: {error}", ordinal) from None
            if actual != header.crc32c:
                raise self.corrupt(
                    f"checksum is {actual:#010x}, the batch header says {header.crc32c:#010x}",
                    ordinal,
                )


def corrupt_segment(path: str, reason: str, position: int = -1) -> CorruptRecordError:
    """Return the error for a damaged segment file.

    Args:
        path: the file's path, relative to the store's root.
        reason: a description of the damage.
        position: the damaged Arrow batch's position; -1 for the file as a whole.
    """
    where = f"{path}, position {position}" if position >= 0 else path
    return CorruptRecordError(
        f"{where}: {reason}. Restore the file from a copy, or seek past it",
        path=path,
        position=position,
    )
