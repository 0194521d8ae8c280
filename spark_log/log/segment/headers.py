"""Batch headers of a segment file: read, checked, and checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.file import SegmentFile
from spark_log.record import (
    CHECK_KEY,
    METADATA_KEY,
    RECORD_SCHEMA,
    BatchHeader,
    arrow_ipc,
    decode_check,
    decode_headers,
    header_array,
)


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


class SegmentHeaders:
    """Reads the batch headers of a segment file. It keeps those of the last Arrow batch.

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
        self._column_count = len(file.schema)
        self._last = _NO_HEADERS

    def read(self, ordinal: int) -> BatchHeaders:
        """Return the headers of an Arrow batch, without decoding it.

        Raises:
            CorruptRecordError: the headers are damaged; has file and position.
        """
        if self._last.ordinal != ordinal:
            self._last = self._read(ordinal)
        return self._last

    def array(self, ordinal: int) -> np.ndarray:
        """Return the headers of an Arrow batch as an array of `HEADER_DTYPE`.

        The headers are checked by their header check alone, not against each other.

        Raises:
            CorruptRecordError: the headers are damaged; has file and position.
        """
        try:
            return header_array(self._value(ordinal)[0])
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

    def corrupt(self, reason: str, ordinal: int | None = None) -> CorruptRecordError:
        """Return the error for a damaged file, or for an Arrow batch of it."""
        position = -1 if ordinal is None else int(self._file.blocks.positions[ordinal])
        return corrupt_segment(self._path, reason, position)

    def _read(self, ordinal: int) -> BatchHeaders:
        try:
            value, sums = self._value(ordinal)
            headers = decode_headers(value)
            self._check(ordinal, headers)
            return BatchHeaders(ordinal, headers, sums is not None, sums or ())
        except ValueError as error:
            raise self.corrupt(str(error), ordinal) from None

    def _value(self, ordinal: int) -> tuple[bytes, tuple[int, ...] | None]:
        """Return the encoded headers of an Arrow batch, and its column sums; None without a check.

        Raises:
            ValueError: the headers are missing, or do not fit their check.
        """
        metadata = arrow_ipc.custom_metadata(self._file.message(ordinal))
        value, check = metadata.get(METADATA_KEY), metadata.get(CHECK_KEY)
        if value is None:
            raise ValueError("no batch header")
        if check is None:
            return value, None
        return value, decode_check(check, self._append_id, value, self._column_count)

    def _check(self, ordinal: int, headers: Sequence[BatchHeader]) -> None:
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
