"""The header of Kafka's v2 record batch, read and written without its records.

A batch is, big-endian: ``base offset i64, length i32, partition leader epoch i32, magic i8, crc
u32, attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64,
producer epoch i16, base sequence i32, record count i32``, then the records, compressed as a whole.
The CRC-32C covers everything from the attributes on: base offset and leader epoch may be changed in
place (Kafka's ``DefaultRecordBatch``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import google_crc32c
import pyarrow as pa

from spark_log.gateway.record_batches.batch_error import BatchError, BatchErrorCode
from spark_log.record import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

MAGIC: Final = 2
HEADER_BYTES: Final = 61
"""The length of a v2 batch without records."""

MIN_RECORD_BYTES: Final = 7
"""The length of the shortest record: its size, attributes, two deltas, two nulls, no headers."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_PREFIX_BYTES = _PREFIX.size
_MAGIC_POSITION = 16
_CRC_POSITION = 17
_CRC = struct.Struct(">I")
_CHECKSUMMED_FROM = 21
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12


@dataclass(frozen=True, slots=True)
class ClientBatch:
    """A v2 record batch in Kafka's bytes, whose header and checksum have been checked.

    Attributes:
        base_offset: the offset of the first record; in a produce request it has no meaning.
        leader_epoch: the partition's leader epoch; -1 in a produce request.
        attributes: bits 0 to 2 compression type, 3 timestamp type, 4 transactional, 5 control, 6
            delete horizon.
        last_offset_delta: the last offset, minus the base offset.
        base_timestamp_ms: the timestamp that those of the records are relative to.
        max_timestamp_ms: the largest timestamp, or the append time of all records.
        producer_id: the id of the idempotent producer; -1 without one.
        producer_epoch: the producer's epoch; -1 without one.
        base_sequence: the sequence number of the first record; -1 without one.
        record_count: the number of records; if they are not compressed, one for each 7 bytes at
            most.
        data: the whole batch.
    """

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: memoryview

    COMPRESSION_BITS: ClassVar[int] = 0x07
    TIMESTAMP_TYPE_BIT: ClassVar[int] = 1 << 3
    TRANSACTIONAL_BIT: ClassVar[int] = 1 << 4
    CONTROL_BIT: ClassVar[int] = 1 << 5

    @property
    def compression_type(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 do not exist."""
        return self.attributes & self.COMPRESSION_BITS

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & self.TIMESTAMP_TYPE_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & self.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, which clients may not produce."""
        return bool(self.attributes & self.CONTROL_BIT)

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def records(self) -> memoryview:
        """The bytes after the header: the records, compressed if the attributes say so."""
        return self.data[HEADER_BYTES:]


def split(data: bytes | bytearray | memoryview, *, max_batches: int) -> list[ClientBatch]:
    """Return the v2 batches in Kafka's bytes, in order. Headers and checksums are checked.

    Bytes of a batch that is cut off at the end are an error: clients produce whole batches.

    Args:
        data: the field ``records`` of a produce request; the batches are views of it.
        max_batches: the largest number of batches. Kafka's produce requests may have one.

    Raises:
        BatchError: a length, the magic, a count or a checksum is wrong, or there are more batches.
    """
    return list(_batches(memoryview(data).cast("B"), max_batches))


def check_produced(batch: ClientBatch) -> None:
    """Check what Kafka's ``LogValidator`` checks of a client's batch before it reads the records.

    Raises:
        BatchError: the batch has no record or a wrong count, is a control batch, has a timestamp
            type that only brokers set, or has a producer id without epoch or sequence number.
    """
    count = batch.last_offset_delta + 1
    if batch.record_count <= 0 or count != batch.record_count:
        raise _invalid(
            f"a batch of {batch.record_count} records has a last offset delta of "
            f"{batch.last_offset_delta}; expected one record or more, and their number minus one"
        )
    if batch.is_control:
        raise _invalid("the batch has control records, which clients may not produce")
    if batch.timestamp_type:
        raise BatchError(
            "the batch has the timestamp type LogAppendTime, which only brokers set; expected "
            "CreateTime",
            BatchErrorCode.INVALID_TIMESTAMP,
        )
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise _invalid(
            f"the batch of producer id {batch.producer_id} has epoch {batch.producer_epoch} and "
            f"sequence number {batch.base_sequence}; expected 0 or more for both"
        )
    if batch.is_transactional and batch.producer_id < 0:
        raise _invalid("the batch is transactional and has no producer id")


def with_base_offset(
    data: bytes | bytearray | memoryview, base_offset: int, leader_epoch: int
) -> bytearray:
    """Return a copy of a batch with another base offset and leader epoch.

    The checksum covers neither of them, so the batch stays valid.
    """
    copy = bytearray(data)
    _PREFIX.pack_into(copy, 0, base_offset, len(copy) - _PREFIX_BYTES)
    _LEADER_EPOCH.pack_into(copy, _LEADER_EPOCH_POSITION, leader_epoch)
    return copy


def write_header(
    batch: bytearray,
    *,
    base_offset: int,
    last_offset_delta: int,
    record_count: int,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> None:
    """Write header and checksum into the first 61 bytes of a batch, before its records."""
    length = len(batch) - _PREFIX_BYTES
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        length,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, _CRC_POSITION, _crc32c(memoryview(batch)))


def _batches(data: memoryview, max_batches: int) -> Iterator[ClientBatch]:
    position = index = 0
    while position < len(data):
        if index >= max_batches:
            raise _invalid(f"more than {max_batches} record batches; expected {max_batches}")
        rest = data[position:]
        if len(rest) < HEADER_BYTES:
            raise _corrupt(f"{len(rest)} bytes are no batch; its header has {HEADER_BYTES}", index)
        _, length = _PREFIX.unpack_from(rest)
        magic = rest[_MAGIC_POSITION]
        if magic != MAGIC:
            error = _invalid(f"a batch of magic {magic}; expected {MAGIC}")
            error.batch_index = index
            raise error
        if not HEADER_BYTES - _PREFIX_BYTES <= length <= len(rest) - _PREFIX_BYTES:
            raise _corrupt(
                f"a batch has a length of {length} bytes after its first {_PREFIX_BYTES}; expected "
                f"{HEADER_BYTES - _PREFIX_BYTES} to {len(rest) - _PREFIX_BYTES}",
                index,
            )
        batch = _batch(rest[: _PREFIX_BYTES + length], index)
        yield batch
        position += len(batch.data)
        index += 1


def _batch(data: memoryview, index: int) -> ClientBatch:
    fields: tuple[int, ...] = _HEADER.unpack_from(data)
    base_offset, _, leader_epoch, _, crc = fields[:5]
    batch = ClientBatch(base_offset, leader_epoch, *fields[5:], data=data)  # type: ignore[misc, arg-type]
    actual = _crc32c(data)
    if actual != crc:
        raise _corrupt(f"a batch has checksum {actual:#010x}; its header says {crc:#010x}", index)
    if batch.last_offset_delta < 0 or batch.record_count < 0:
        raise _corrupt(
            f"a batch has {batch.record_count} records and a last offset delta of "
            f"{batch.last_offset_delta}; expected no negative number",
            index,
        )
    records = len(data) - HEADER_BYTES
    if not batch.compression_type and batch.record_count > records // MIN_RECORD_BYTES:
        raise _corrupt(f"a batch of {records} bytes claims {batch.record_count} records", index)
    return batch


def _crc32c(data: memoryview) -> int:
    # A memoryview would be refused, and `slice` copies nothing.
    return int(google_crc32c.value(pa.py_buffer(data).slice(_CHECKSUMMED_FROM)))


def _invalid(message: str) -> BatchError:
    return BatchError(message, BatchErrorCode.INVALID_RECORD)


def _corrupt(message: str, index: int) -> BatchError:
    return BatchError(message, BatchErrorCode.CORRUPT_MESSAGE, batch_index=index)
