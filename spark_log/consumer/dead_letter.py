"""Dead letters: records that cannot be processed, sent to a topic of their own.

What one is and why is in its headers, behind those that it had:

================================  ================================================
``dead_letter.topic``             where the record was first read
``dead_letter.partition``         likewise, in decimal digits
``dead_letter.offset``            likewise
``dead_letter.error``             name of the error and what it said
``dead_letter.attempt``           how often the record has been tried by now, from 1
================================  ================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from spark_log.errors import InvalidRecordError, RecordDeserializationError
from spark_log.types import ConsumerRecord

PREFIX: Final = "dead_letter."
_MAX_ERROR_CHARACTERS: Final = 2_000

Headers = list[tuple[str, bytes | None]]


class SendsRecords(Protocol):
    """What a producer has to have: `Producer`, or anyone else's."""

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Headers | None = None,
    ) -> object:
        """Send a record, and return a future."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What the headers of a dead letter tell.

    Attributes:
        topic: where the record was first read.
        partition: likewise.
        offset: likewise.
        error: name of the error and what it said.
        attempt: how often the record had been tried.
    """

    topic: str
    partition: int
    offset: int
    error: str
    attempt: int

    @classmethod
    def of(cls, record: ConsumerRecord) -> Self | None:
        """Return what a record's headers tell, None where it is no dead letter.

        Raises:
            InvalidRecordError: its headers look like a dead letter's, and are not.
        """
        found = {
            name.removeprefix(PREFIX): (content or b"").decode("utf-8", "replace")
            for name, content in record.headers
            if name.startswith(PREFIX)
        }
        if not found:
            return None
        try:
            return cls(
                found["topic"],
                int(found["partition"]),
                int(found["offset"]),
                found["error"],
                int(found["attempt"]),
            )
        except (KeyError, ValueError) as error:
            raise InvalidRecordError(
                f"the headers of the record at offset {record.offset} of {record.topic}-"
                f"{record.partition} are not a dead letter's: {error!r}"
            ) from None

    def headers(self) -> Headers:
        """Return the headers."""
        return [
            (f"{PREFIX}topic", self.topic.encode()),
            (f"{PREFIX}partition", b"%d" % self.partition),
            (f"{PREFIX}offset", b"%d" % self.offset),
            (f"{PREFIX}error", self.error.encode("utf-8", "replace")),
            (f"{PREFIX}attempt", b"%d" % self.attempt),
        ]


class DeadLetters:
    """Sends dead letters to a topic.

    A letter that is sent before the position behind its record is committed is sent at least once:
    wait for the future before committing.
    """

    def __init__(self, producer: SendsRecords, topic: str) -> None:
        """Send nothing yet.

        Args:
            producer: any object with a producer's ``send``. It is given keys and values as the
                record has them: bytes, unless the consumer deserializes.
            topic: where to.
        """
        self._producer = producer
        self.topic = topic

    def send(
        self, record: ConsumerRecord | RecordDeserializationError, error: Exception | None = None
    ) -> object:
        """Send a record that could not be processed.

        Args:
            record: the record, or the error by which a deserializer refused one, which has its
                bytes. A dead letter that failed again keeps where it was first read, and counts on.
            error: why; None for a deserializer's own error.

        Returns:
            What the producer's ``send`` returns: wait for it before going on.
        """
        if isinstance(record, RecordDeserializationError):
            error = error or record
            record = _record_of(record)
        if error is None:
            raise ValueError("why is the record a dead letter? Give the error")
        before = DeadLetter.of(record)
        letter = DeadLetter(
            before.topic if before else record.topic,
            before.partition if before else record.partition,
            before.offset if before else record.offset,
            f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARACTERS],
            before.attempt + 1 if before else 1,
        )
        headers = [*_without_letter(record.headers), *letter.headers()]
        return self._producer.send(self.topic, record.value, record.key, headers)


def _record_of(refused: RecordDeserializationError) -> ConsumerRecord:
    return ConsumerRecord(
        refused.topic,
        refused.partition,
        refused.offset,
        refused.timestamp,
        0,
        refused.key,
        refused.value,
        list(refused.headers),
        -1,
    )


def _without_letter(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    return [each for each in headers if not each[0].startswith(PREFIX)]
