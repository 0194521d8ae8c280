"""Records of a segment file: Arrow batches, decoded and checked against their headers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_log.log.segment.file import Decode, SegmentFile
from spark_log.log.segment.headers import SegmentHeaders
from spark_log.record import (
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    array_crc32c,
    batch_crc32c,
    ints_of,
)


class SegmentRecords:
    """Decodes the record batches of a segment file, and checks them.

    Each decoded batch is validated in full by Arrow, and its number of rows and their offsets are
    checked against its headers. Damage raises `CorruptRecordError`, or, without checksums,
    changes bytes in a value. It never crashes the process and never loses a record.
    """

    def __init__(self, file: SegmentFile, headers: SegmentHeaders) -> None:
        """Read nothing yet.

        Args:
            file: the segment's file.
            headers: the headers of the same file.
        """
        self._file = file
        self._headers = headers
        self._schema = file.schema
        self._has_deltas = headers.has_deltas

    def decoder(self, columns: Sequence[str], *, check: bool) -> Decode:
        """Return a function that decodes batches to these columns, and ``offset_delta`` if stored.

        Args:
            columns: names of columns of `RECORD_SCHEMA`.
            check: whether to check checksums. Columns without a checksum of their own are checked
                by that of the batch, for which all columns are decoded.

        Raises:
            CorruptRecordError: the file is damaged. The function raises it with file and position.
        """
        stored = [*columns, OFFSET_DELTA_FIELD.name] if self._has_deltas else list(columns)
        decode = self._decoder(stored)
        if not check or set(columns) >= set(RECORD_SCHEMA.names):
            return lambda ordinal: self._decode(decode, ordinal, check=check)
        whole: Decode | None = None

        def read(ordinal: int) -> pa.RecordBatch:
            nonlocal whole
            if self._headers.read(ordinal).column_sums:
                records = self._decode(decode, ordinal, check=False)
                self._check_columns(ordinal, records)
                return records
            if whole is None:
                whole = self._decoder(self._schema.names)
            return self._decode(whole, ordinal, check=True).select(stored)

        return read

    def check_skipped(self, ordinal: int) -> None:
        """Check the offsets of a batch that is not read because of them.

        If its headers have no check of their own, this reads its records. In a file without gaps
        there is nothing to check: wrong offsets would not fit the number of records.

        Raises:
            CorruptRecordError: the batch is damaged.
        """
        if self._has_deltas and not self._headers.read(ordinal).are_checked:
            self.decoder(RECORD_SCHEMA.names, check=True)(ordinal)

    def _decoder(self, columns: Sequence[str]) -> Decode:
        try:
            return self._file.decoder(columns)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._headers.corrupt(str(error)) from None

    def _decode(self, decode: Decode, ordinal: int, *, check: bool) -> pa.RecordBatch:
        headers = self._headers.read(ordinal).headers
        try:
            records = decode(ordinal)
            # In full: all code below, and every user, trusts the offsets inside the buffers.
            records.validate(full=True)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._headers.corrupt(
                f"the record batch cannot be decoded: {error}", ordinal
            ) from None
        if sum(header.record_count for header in headers) != records.num_rows:
            raise self._headers.corrupt("the batch headers do not cover the rows", ordinal)
        if self._has_deltas:
            self._check_deltas(ordinal, headers, records.column(OFFSET_DELTA_FIELD.name))
        if check:
            self._check_crcs(ordinal, headers, records)
        return records

    def _check_columns(self, ordinal: int, records: pa.RecordBatch) -> None:
        """Check columns by their own checksums."""
        sums = self._headers.read(ordinal).column_sums
        for name, column in zip(records.schema.names, records.columns, strict=True):
            try:
                is_right = array_crc32c(column) == sums[self._schema.get_field_index(name)]
            except (ValueError, IndexError, pa.ArrowException) as error:
                raise self._headers.corrupt(
                    f"the column {name} is inconsistent: {error}", ordinal
                ) from None
            if not is_right:
                raise self._headers.corrupt(f"checksum of the column {name} does not fit", ordinal)

    def _check_deltas(self, ordinal: int, headers: Sequence[BatchHeader], column: pa.Array) -> None:
        """Check that offsets are ascending, and within the range of their header."""
        deltas = ints_of(column, np.int32)
        ends = np.cumsum([header.record_count for header in headers])
        starts = np.concatenate([[0], ends[:-1]])
        has_rows = starts < ends
        least = np.array([header.base_offset_delta for header in headers])[has_rows]
        most = np.array([header.last_offset_delta for header in headers])[has_rows]
        sums = self._headers.read(ordinal).column_sums
        if (
            column.null_count
            or (deltas[1:] <= deltas[:-1]).any()
            or (deltas[starts[has_rows]] < least).any()
            or (deltas[ends[has_rows] - 1] > most).any()
            or (sums and array_crc32c(column) != sums[-1])
        ):
            raise self._headers.corrupt(
                "its records' offsets are not those that its headers speak of", ordinal
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
                raise self._headers.corrupt(
                    f"the record batch is inconsistent: {error}", ordinal
                ) from None
            if actual != header.crc32c:
                raise self._headers.corrupt(
                    f"checksum is {actual:#010x}, the batch header says {header.crc32c:#010x}",
                    ordinal,
                )
