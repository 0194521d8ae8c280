"""The header of a record batch: the fields of Kafka's v2 batch, in an Arrow batch's metadata.

On storage: in the ``custom_metadata`` of the Arrow record batch under ``spark_log.batch``, one or
more 53-byte little-endian structs, one after the other, in base64 (readers built on arrow-rs
require metadata in UTF-8: ADR 2). If an Arrow batch has several headers, each describes the next
``record_count`` rows.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from spark_log.record.control_record import ControlRecordType

METADATA_KEY = b"spark_log.batch"
MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

_LAYOUT = struct.Struct("<iiibhIqqqhii")
_CHECKSUMMED = struct.Struct("<iibhqqqhii")

HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset_delta", "<i4"),
        ("last_offset_delta", "<i4"),
        ("leader_epoch", "<i4"),
        ("magic", "<i1"),
        ("attributes", "<i2"),
        ("crc32c", "<u4"),
        ("base_timestamp_us", "<i8"),
        ("max_timestamp_us", "<i8"),
        ("producer_id", "<i8"),
        ("producer_epoch", "<i2"),
        ("base_sequence", "<i4"),
        ("record_count", "<i4"),
    ]
)
"""The type of one header in `header_array`: the fields of `BatchHeader`, in the order of its
bytes."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of a batch, read without decoding its records (Kafka's ``DefaultRecordBatch``).

    Attributes:
        base_offset_delta: the first offset of the batch, relative to the segment's base offset.
        last_offset_delta: the last offset of the batch, relative to the segment's base offset. In a
            compacted segment the batch may have no record with this offset, or no record at all.
        leader_epoch: the epoch of the leader that appended the batch.
        attributes: bit 3 timestamp type, 4 transactional, 5 control, 6 delete horizon, 7 abort: the
            control batch ends a transaction as aborted, not as committed.
        crc32c: the checksum of the other fields and of the batch's content (`record.checksum`).
        base_timestamp_us: the timestamp of the first record, microseconds; -1 without records. With
            bit 6, the delete horizon instead: the time from which the batch's tombstones may be
            removed (KIP-534).
        max_timestamp_us: the largest timestamp of the batch, microseconds; -1 without records.
        producer_id: the id of the idempotent producer; -1 without one.
        producer_epoch: the epoch of the idempotent producer; -1 without one.
        base_sequence: the sequence number of the first record; -1 without an idempotent producer.
        record_count: the number of records (rows) in the batch.
        magic: the format of the batch, 2.
    """

    base_offset_delta: int
    last_offset_delta: int
    leader_epoch: int
    attributes: int
    crc32c: int
    base_timestamp_us: int
    max_timestamp_us: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    magic: int = MAGIC

    TIMESTAMP_TYPE_BIT: ClassVar[int] = 1 << 3
    TRANSACTIONAL_BIT: ClassVar[int] = 1 << 4
    CONTROL_BIT: ClassVar[int] = 1 << 5
    DELETE_HORIZON_BIT: ClassVar[int] = 1 << 6
    ABORT_BIT: ClassVar[int] = 1 << 7

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & self.TIMESTAMP_TYPE_BIT else 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, which consumers do not return."""
        return bool(self.attributes & self.CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction: records, or the marker at its end."""
        return bool(self.attributes & self.TRANSACTIONAL_BIT) and self.producer_id != NO_PRODUCER_ID

    @property
    def marker(self) -> ControlRecordType | None:
        """The outcome of a transaction, if the batch is the marker at its end; otherwise None.

        A control batch that is not transactional is not a marker.
        """
        if not (self.is_control and self.is_transactional):
            return None
        is_abort = self.attributes & self.ABORT_BIT
        return ControlRecordType.ABORT if is_abort else ControlRecordType.COMMIT

    @property
    def has_gaps(self) -> bool:
        """Whether a compaction removed records of the batch, so that offsets are missing."""
        return self.record_count != self.last_offset_delta - self.base_offset_delta + 1

    def pack(self) -> bytes:
        """Return the header's 53 bytes (before base64)."""
        return _LAYOUT.pack(
            self.base_offset_delta,
            self.last_offset_delta,
            self.leader_epoch,
            self.magic,
            self.attributes,
            self.crc32c,
            self.base_timestamp_us,
            self.max_timestamp_us,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def checksummed_bytes(self) -> bytes:
        """Return the fields that the checksum covers, in a form that a merge does not change.

        The fields include only the length of the range of offsets: the base offset depends on the
        segment (Kafka's checksum does not cover the base offset either).
        """
        return checksummed_bytes(
            self.last_offset_delta - self.base_offset_delta,
            self.leader_epoch,
            self.attributes,
            self.base_timestamp_us,
            self.max_timestamp_us,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
            magic=self.magic,
        )


def checksummed_bytes(
    offsets: int, leader_epoch: int, attributes: int, *others: int, magic: int = MAGIC
) -> bytes:
    """Return the fields of a header that the checksum covers.

    Args:
        offsets: the last offset less the first one.
        leader_epoch: the leader epoch.
        attributes: the attributes.
        others: the fields behind the checksum, in the order of the header.
        magic: the format of the batch.
    """
    return _CHECKSUMMED.pack(offsets, leader_epoch, magic, attributes, *others)


def latest_timestamp_us(headers: Iterable[BatchHeader]) -> int | None:
    """Return the largest timestamp of batches, microseconds; None if they have no records."""
    return max((each.max_timestamp_us for each in headers if each.record_count), default=None)


def latest_delete_horizon_us(headers: Iterable[BatchHeader]) -> int:
    """Return the latest delete horizon of batches, microseconds; -1 if no batch has one."""
    return max(
        (
            each.base_timestamp_us
            for each in headers
            if each.record_count and each.attributes & each.DELETE_HORIZON_BIT
        ),
        default=NO_TIMESTAMP,
    )


def encode_headers(headers: Sequence[BatchHeader]) -> bytes:
    """Return the value under `METADATA_KEY` for an Arrow batch with these headers, in row order."""
    return binascii.b2a_base64(b"".join(header.pack() for header in headers), newline=False)


def decode_headers(value: bytes) -> tuple[BatchHeader, ...]:
    """Return the headers in a value under `METADATA_KEY`.

    Raises:
        ValueError: the value is not base64, not a whole number of headers, or of unknown magic.
    """
    return unpack_headers(packed_headers(value))


def unpack_headers(packed: bytes) -> tuple[BatchHeader, ...]:
    """Return the headers in consecutive results of `BatchHeader.pack`.

    Raises:
        ValueError: a header is of unknown magic.
    """
    headers = []
    for first, last, epoch, magic, *behind in _LAYOUT.iter_unpack(packed):
        if magic != MAGIC:
            raise _unknown_magic(magic)
        headers.append(BatchHeader(first, last, epoch, *behind))
    return tuple(headers)


def header_array(packed: bytes) -> np.ndarray:
    """Return the headers in consecutive results of `BatchHeader.pack` as `HEADER_DTYPE`.

    Use it for few fields of many headers: it takes a tenth of the time of `unpack_headers`.

    Raises:
        ValueError: a header is of unknown magic.
    """
    headers = np.frombuffer(packed, HEADER_DTYPE)
    unknown = headers["magic"][headers["magic"] != MAGIC]
    if len(unknown):
        raise _unknown_magic(unknown[0])
    return headers


def packed_headers(value: bytes) -> bytes:
    """Return the headers in a value under `METADATA_KEY`, as `BatchHeader.pack` returns each.

    Raises:
        ValueError: the value is not base64, or not a whole number of headers.
    """
    packed = binascii.a2b_base64(value, strict_mode=True)
    if not packed or len(packed) % _LAYOUT.size:
        raise ValueError(f"{len(packed)} bytes are not a whole number of batch headers")
    # The last character may have bits that belong to no byte: b2a_base64 leaves them 0.
    rest = len(packed) % 3
    if rest and binascii.b2a_base64(packed[-rest:], newline=False) != value[-4:]:
        raise ValueError("the last character of the base64 text is damaged")
    return packed


def _unknown_magic(magic: int) -> ValueError:
    return ValueError(f"batch header of unknown magic {magic}, expected {MAGIC}")
