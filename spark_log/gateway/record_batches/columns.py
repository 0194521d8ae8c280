"""The types of records as columns, between the loops over records and Arrow's arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

RecordPart: TypeAlias = tuple[bytes | memoryview, int, int]
"""The records of a batch without compression, their number, and the base timestamp in ms."""

Bytes: TypeAlias = Any
"""Something with the buffer protocol."""

BinaryBuffers: TypeAlias = tuple[Bytes, Bytes | None, Bytes]
"""Arrow's buffers of a binary array: offsets, validity (None without a null), data."""

HeaderBuffers: TypeAlias = tuple[Bytes, Bytes | None, BinaryBuffers, BinaryBuffers]
"""Offsets and validity of the lists, then names and values of the headers of all records."""

RecordColumns: TypeAlias = tuple[Bytes, Bytes, BinaryBuffers, BinaryBuffers, HeaderBuffers | None]
"""Timestamps (int64, microseconds), offset deltas (int32), keys, values, headers."""
