"""The header of a record batch: Kafka's v2 fields, packed into an Arrow batch's metadata.

It lies in the ``custom_metadata`` of the Arrow record batch under ``spark_log.batch``: one or more
53-byte little-endian structs, one after the other, in base64. (Base64 because readers built on
arrow-rs insist that metadata is UTF-8: ADR 2.) Several headers in one Arrow batch each describe
the next ``record_count`` rows.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

METADATA_KEY = b"spark_log.batch"
MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

_LAYOUT = struct.Struct("<iiibhIqqqhii")
_CHECKSUMMED = struct.Struct("<iibhqqqhii")


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What is known of a batch without decoding its records (Kafka's ``DefaultRecordBatch``).

    Attributes:
        base_offset_delta: first offset of the batch, relative to the segment's base offset.
        last_offset_delta: last offset of the batch, relative to the segment's base offset. In a
            compacted segment no record need be there any more.
        leader_epoch: epoch of the leader that took the batch.
        attributes: bit 3 timestamp type, 4 transactional, 5 control, 6 delete horizon.
        crc32c: over the other fields and the batch's content, see `record.checksum`.
        base_timestamp_us: timestamp of the first record, microseconds; with bit 6 the delete
            horizon instead: from then on the batch's tombstones may go (KIP-534). Without records
            -1.
        max_timestamp_us: largest timestamp of the batch, microseconds. Without records -1.
        producer_id: of an idempotent producer, else -1.
        producer_epoch: of an idempotent producer, else -1.
        base_sequence: sequence number of the first record, else -1.
        record_count: how many records (rows) the batch holds.
        magic: format of the batch, 2.
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

    SIZE_BYTES: ClassVar[int] = _LAYOUT.size
    TIMESTAMP_TYPE_BIT: ClassVar[int] = 1 << 3
    TRANSACTIONAL_BIT: ClassVar[int] = 1 << 4
    CONTROL_BIT: ClassVar[int] = 1 << 5
    DELETE_HORIZON_BIT: ClassVar[int] = 1 << 6

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & self.TIMESTAMP_TYPE_BIT else 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers that no user sees."""
        return bool(self.attributes & self.CONTROL_BIT)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets of the batch's range have no record any more."""
        return self.record_count != self.last_offset_delta - self.base_offset_delta + 1

    def pack(self) -> bytes:
        """Return the 53 bytes at rest (before base64)."""
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

        The offsets enter as the length of their range: where the segment begins is not a property
        of the batch (for Kafka too the checksum leaves the base offset out).
        """
        return _CHECKSUMMED.pack(
            self.last_offset_delta - self.base_offset_delta,
            self.leader_epoch,
            self.magic,
            self.attributes,
            self.base_timestamp_us,
            self.max_timestamp_us,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )


def latest_timestamp_us(headers: Iterable[BatchHeader]) -> int | None:
    """Return the largest timestamp of batches, microseconds; None where no record is left."""
    return max((each.max_timestamp_us for each in headers if each.record_count), default=None)


def encode_headers(headers: Sequence[BatchHeader]) -> bytes:
    """Return the metadata value for an Arrow batch that carries these headers, in row order."""
    return binascii.b2a_base64(b"".join(header.pack() for header in headers), newline=False)


def decode_headers(value: bytes) -> tuple[BatchHeader, ...]:
    """Return the headers in a metadata value.

    Raises:
        ValueError: it is not base64, not a whole number of headers, or of an unknown magic.
    """
    packed = binascii.a2b_base64(value, strict_mode=True)
    if not packed or len(packed) % _LAYOUT.size:
        raise ValueError(f"{len(packed)} bytes are not a whole number of batch headers")
    headers = []
    for first, last, epoch, magic, *behind in _LAYOUT.iter_unpack(packed):
        if magic != MAGIC:
            raise ValueError(f"batch header of unknown magic {magic}, expected {MAGIC}")
        headers.append(BatchHeader(first, last, epoch, *behind))
    return tuple(headers)
