"""The error of a record batch that a client sent, with Kafka's error code for the answer."""

from __future__ import annotations

from enum import IntEnum


class BatchErrorCode(IntEnum):
    """The codes of Kafka's ``Errors`` that a record batch can be refused with."""

    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class BatchError(ValueError):
    """A client's record batch is damaged, or has content that a log cannot store.

    Attributes:
        code: Kafka's error code.
        batch_index: the index of the batch among those that were given together.
        record_index: the index of the record in its batch; -1 if the fault is not in one record.
    """

    def __init__(
        self, message: str, code: BatchErrorCode, *, batch_index: int = 0, record_index: int = -1
    ) -> None:
        super().__init__(message)
        self.code = code
        self.batch_index = batch_index
        self.record_index = record_index

    @property
    def message(self) -> str:
        """The message: the problem and the expected state."""
        return str(self.args[0])
