"""The two ways to read and write the records of a batch: compiled C, or numpy and pyarrow.

The C module ``_native`` is optional (docs/adr/0053): a package that is installed without a compiler
does not have it. Both ways accept and refuse the same bytes, and write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from spark_log.gateway.record_batches import numpy_decoder, numpy_encoder
from spark_log.gateway.record_batches.columns import RecordColumns, RecordPart


class DecodeRecords(Protocol):
    """Reads the records of several batches into columns.

    It raises ValueError with a number of `RecordFault`, the index of the batch and that of the
    record, if a record is not valid.
    """

    def __call__(self, parts: list[RecordPart]) -> RecordColumns:
        """Return the columns of the records of all batches, in order."""


class EncodeRecords(Protocol):
    """Writes the records of a batch, after some zeros for the batch's header.

    It raises OverflowError if the batch would exceed 2 GiB.
    """

    def __call__(
        self,
        prefix_bytes: int,
        deltas_ms: np.ndarray,
        offset_deltas: np.ndarray,
        key: pa.Array,
        value: pa.Array,
        headers: pa.ListArray,
    ) -> bytearray:
        """Return the bytes of the records.

        Args:
            prefix_bytes: the number of zeros before them.
            deltas_ms: each record's timestamp relative to the batch's, int64.
            offset_deltas: each record's offset relative to the batch's, int32.
            key: the keys, binary.
            value: the values, binary.
            headers: the headers, `HEADERS_TYPE`; no name is null.
        """


@dataclass(frozen=True, slots=True)
class RecordCodec:
    """One way to read and write records.

    Attributes:
        name: ``native`` or ``numpy``.
        decode: reads records.
        encode: writes records.
    """

    name: str
    decode: DecodeRecords
    encode: EncodeRecords


NUMPY_CODEC = RecordCodec("numpy", numpy_decoder.decode, numpy_encoder.encode)


@cache
def native_codec() -> RecordCodec | None:
    """Return the compiled way; None if the C module was not compiled."""
    try:
        native: Any = import_module("spark_log.gateway.record_batches._native")
    except ImportError:
        return None

    def encode(
        prefix_bytes: int,
        deltas_ms: np.ndarray,
        offset_deltas: np.ndarray,
        key: pa.Array,
        value: pa.Array,
        headers: pa.ListArray,
    ) -> bytearray:
        times = np.ascontiguousarray(deltas_ms, np.int64)
        offsets = np.ascontiguousarray(offset_deltas, np.int32)
        arrays = (_binary(key), _binary(value), _headers(headers))
        encoded: bytearray = native.encode(prefix_bytes, times, offsets, *arrays)
        return encoded

    return RecordCodec("native", native.decode, encode)


def fastest_codec() -> RecordCodec:
    """Return the compiled way, or the other if the C module was not compiled."""
    return native_codec() or NUMPY_CODEC


def _binary(array: pa.Array) -> tuple[Any, Any, Any, int] | None:
    """Return the array as ``_native.c`` takes it: buffers, and the first row in them."""
    if array.null_count == len(array):
        return None
    validity, offsets, data = array.buffers()
    return offsets, validity if array.null_count else None, data or b"", array.offset


def _headers(array: pa.ListArray) -> tuple[Any, Any, int, int, Sequence[Any] | None, Any] | None:
    if array.null_count == len(array):
        return None
    validity, offsets = array.buffers()[:2]
    items = array.values
    names, values = (_binary(items.field(number)) for number in (0, 1))
    has_nulls = bool(array.null_count)
    return offsets, validity if has_nulls else None, array.offset, len(items), names, values
