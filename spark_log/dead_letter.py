"""Dead letters: records that cannot be processed, sent to a separate topic.

These headers are added after the record's own headers:

================================  ================================================
``dead_letter.topic``             topic in which the record was first read
``dead_letter.partition``         its partition there, in decimal digits
``dead_letter.offset``            its offset there, in decimal digits
``dead_letter.error``             class name and message of the error
``dead_letter.attempt``           number of attempts to process it, from 1
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
    """The interface of a producer: `Producer`, or another class with this method."""

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
    """The headers of a dead letter.

    Attributes:
        topic: the topic in which the record was first read.
        partition: the record's partition in that topic.
        offset: the record's offset in that partition.
        error: the class name and message of the error.
        attempt: the number of attempts to process the record.
    """

    topic: str
    partition: int
    offset: int
    error: str
    attempt: int

    @classmethod
    def of(cls, record: ConsumerRecord) -> Self | None:
        """Parse a record's headers; return None if the record is no dead letter.

        Raises:
            InvalidRecordError: some headers of a dead letter are missing or not valid.
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
        """Return the headers in their form in a record."""
        return [
            (f"{PREFIX}topic", self.topic.encode()),
            (f"{PREFIX}partition", b"%d" % self.partition),
            (f"{PREFIX}offset", b"%d" % self.offset),
            (f"{PREFIX}error", self.error.encode("utf-8", "replace")),
            (f"{PREFIX}attempt", b"%d" % self.attempt),
        ]


class DeadLetters:
    """Sends dead letters to a topic.

    To send each letter at least once, wait for its future before you commit the offset after its
    record.
    """

    def __init__(self, producer: SendsRecords, topic: str) -> None:
        """Prepare; sends nothing.

        Args:
            producer: any object with the ``send`` of a producer. It gets the record's keys and
                values unchanged: bytes, unless the consumer deserializes them.
            topic: the topic for dead letters.
        """
        self._producer = producer
        self.topic = topic

    def __repr__(self) -> str:
        return f"<DeadLetters topic={self.topic!r}>"

    def send(
        self, record: ConsumerRecord | RecordDeserializationError, error: Exception | None = None
    ) -> object:
        """Send a record that could not be processed.

        Args:
            record: the record, or the error of a deserializer, which has the record's bytes. A dead
                letter that failed again keeps its first topic, partition and offset, and its
                attempt is incremented.
            error: the reason; None if ``record`` is the error of a deserializer.

        Returns:
            The result of the producer's ``send``: a future to wait for.
        """
        if isinstance(record, RecordDeserializationError):
            error = error or record
            record = _record_of(record)
        if error is None:
            raise ValueError("error is None; give the error that makes the record a dead letter")
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
