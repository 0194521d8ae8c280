"""The faults that a record of a batch may have, by the numbers that ``_native.c`` gives them."""

from __future__ import annotations

from enum import IntEnum

from spark_log.gateway.record_batches.batch_error import BatchErrorCode


class RecordFault(IntEnum):
    """A fault of one record, which makes its batch invalid."""

    ENDS_EARLY = 1
    LONG_VARINT = 2
    WRONG_SIZE = 3
    HEADER_COUNT = 4
    HEADER_NAME = 5
    LEFT_OVER = 6
    TIME_RANGE = 7
    TOO_LARGE = 8

    @property
    def description(self) -> str:
        """The fault, as a sentence without its subject."""
        return _DESCRIPTIONS[self]

    @property
    def code(self) -> BatchErrorCode:
        """Kafka's error code for a batch with this fault."""
        return _CODES.get(self, BatchErrorCode.INVALID_RECORD)


_DESCRIPTIONS = {
    RecordFault.ENDS_EARLY: "a field goes past the end of the record or of the batch",
    RecordFault.LONG_VARINT: "a varint has no end within its largest size",
    RecordFault.WRONG_SIZE: "its fields end before the record does",
    RecordFault.HEADER_COUNT: "the number of headers is negative or larger than the record",
    RecordFault.HEADER_NAME: "the name of a header has a negative length",
    RecordFault.LEFT_OVER: "bytes follow the last record that the batch's header counts",
    RecordFault.TIME_RANGE: "its timestamp does not fit in 64 bits as microseconds",
    RecordFault.TOO_LARGE: "the keys, values or headers together exceed 2 GiB",
}
_CODES = {
    RecordFault.TIME_RANGE: BatchErrorCode.INVALID_TIMESTAMP,
    RecordFault.TOO_LARGE: BatchErrorCode.MESSAGE_TOO_LARGE,
}
