"""The marker that ends a producer's transaction in one partition."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.batch_header import NO_SEQUENCE, BatchHeader
from spark_log.record.checksum import content_crc32c
from spark_log.record.control_record import MARKER_VALUE, ControlRecordType
from spark_log.record.producer_append import MAX_PRODUCER_EPOCH
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA
from spark_log.record.small_batch import SmallBatch

_COLUMN: Final = struct.Struct("<x2i")
"""A column of one byte string in a checksum (`record.checksum`): no nulls, then two offsets."""
_TIMESTAMP: Final = struct.Struct("<xq")
"""A column of one timestamp in a checksum: no nulls, then the value."""
_ALL_NULL: Final = b"\2"
"""A column in a checksum that has nothing but nulls, as the headers of a marker's record."""


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The outcome of a producer's transaction (Kafka's class of this name).

    Attributes:
        producer_id: the producer's id.
        producer_epoch: the epoch that the decision gave the producer. It is one more than the epoch
            of the transaction's records, so that the marker fences all of them (KIP-890).
        is_committed: whether the transaction was committed, not aborted.
    """

    producer_id: int
    producer_epoch: int
    is_committed: bool

    def __post_init__(self) -> None:
        """Raise ValueError if a value does not fit the batch header."""
        if not (0 <= self.producer_id < 2**63 and 0 <= self.producer_epoch <= MAX_PRODUCER_EPOCH):
            raise ValueError(
                f"producer id 0 to 2**63 - 1 and epoch 0 to 2**15 - 1 are expected, got {self}"
            )

    @classmethod
    def of_header(cls, header: BatchHeader) -> EndTransactionMarker | None:
        """Return the marker that a batch header describes; None if the batch is not a marker."""
        outcome = header.marker
        if outcome is None:
            return None
        is_committed = outcome is ControlRecordType.COMMIT
        return cls(header.producer_id, header.producer_epoch, is_committed)

    @property
    def type(self) -> ControlRecordType:
        """The type of the control record."""
        return ControlRecordType.COMMIT if self.is_committed else ControlRecordType.ABORT

    @property
    def attributes(self) -> int:
        """The attributes of the marker's batch."""
        attributes = BatchHeader.TRANSACTIONAL_BIT | BatchHeader.CONTROL_BIT
        return attributes if self.is_committed else attributes | BatchHeader.ABORT_BIT

    def header(self, row: int, leader_epoch: int, timestamp_us: int) -> BatchHeader:
        """Return the header of the marker's batch.

        Its checksum is that of `batch_crc32c` for the record of `marker_records`, made without the
        record: Arrow would take longer than everything else.

        Args:
            row: the marker's row in its Arrow batch.
            leader_epoch: the leader epoch.
            timestamp_us: the timestamp of the record, in microseconds since the epoch.
        """
        before = row, row, leader_epoch, self.attributes
        behind = timestamp_us, timestamp_us, self.producer_id, self.producer_epoch, NO_SEQUENCE, 1
        content = (
            _column(self.type.key)
            + _column(MARKER_VALUE)
            + _ALL_NULL
            + _TIMESTAMP.pack(timestamp_us)
        )
        crc32c = content_crc32c(0, *before[2:], *behind, content=content)
        return BatchHeader(*before, crc32c, *behind)


def marker_records(markers: Sequence[EndTransactionMarker], timestamp_us: int) -> pa.RecordBatch:
    """Return one control record for each marker, with the columns of `RECORD_SCHEMA`.

    Args:
        markers: one or more markers.
        timestamp_us: the timestamp of all records, in microseconds since the epoch.
    """
    count = len(markers)
    columns = [
        binary_array([marker.type.key for marker in markers]),
        binary_array([MARKER_VALUE] * count),
        pa.nulls(count, HEADERS_TYPE),
        timestamp_array(np.full(count, timestamp_us, np.int64)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def marker_batch(markers: Sequence[EndTransactionMarker], timestamp_us: int) -> SmallBatch | None:
    """Return the buffers of `marker_records`; None if they are too many for a small batch."""
    keys = [marker.type.key for marker in markers]
    return SmallBatch.of_records(keys, [MARKER_VALUE] * len(keys), [timestamp_us] * len(keys))


def _column(value: bytes) -> bytes:
    return _COLUMN.pack(0, len(value)) + value
