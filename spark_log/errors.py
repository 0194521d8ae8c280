"""Every error that spark-log raises on purpose.

One base class, names as in kafka-python where Kafka has the error. Each carries fields beside
its message, survives pickling (errors cross Spark's processes), and says by ``retriable`` whether
the same call may succeed later without anything being changed by the caller.

Constructors take the finished message first and keyword-only fields after it: that is all that
default exception pickling needs (``cls(message)``, then ``__dict__``).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class SparkLogError(Exception):
    """Base of all errors of this package.

    Attributes:
        retriable: True when trying the same call again later may succeed.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        """What was wrong, what was expected, and what to do."""
        return str(self.args[0])


# --- storage -------------------------------------------------------------------------------------


class StorageError(SparkLogError):
    """The storage refused or failed an operation; nothing was written.

    Attributes:
        path: the path concerned, relative to the root, or the root itself.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NotFoundError(StorageError):
    """There is no file at this path."""


class AlreadyExistsError(StorageError):
    """Put-if-absent found the name taken. What stands there was not touched."""


class StorageFullError(StorageError):
    """No space or quota is left. Nothing became visible; free space and try again."""

    retriable = True


class StorageTimeoutError(StorageError):
    """The storage answers, but so slowly that what it says does not count any more.

    Nothing was done. Try again, or see why the storage, or this process, is so slow.
    """

    retriable = True


class StorageUnavailableError(StorageError):
    """The storage does not answer, or asks to come again later. Nothing was done."""

    retriable = True


class UnknownOutcomeError(StorageError):
    """The answer to a write was lost: it may or may not have taken effect.

    Never to be read as failure. Look whether the write is there before doing it again.

    Attributes:
        is_visible: the write is there to be seen, but may not survive a crash of the machine, so
            that to look for it tells nothing.
    """

    retriable = True

    def __init__(self, message: str, *, path: str = "", is_visible: bool = False) -> None:
        super().__init__(message, path=path)
        self.is_visible = is_visible


class UnsupportedStoreError(StorageError):
    """This storage cannot promise put-if-absent, or no backend knows its scheme."""


class RootNotFoundError(StorageError):
    """There is no spark-log root at this URL (no ``meta.properties``)."""


class InvalidRootError(StorageError):
    """The URL names something that is not, and cannot become, a root of this version."""


class ClockSkewError(SparkLogError):
    """This process's clock is too far from the storage's clock to delete or expire anything.

    Nothing was deleted. Set the machine's clock (NTP), then run the same again; or raise
    ``max.clock.skew.ms`` if the difference is meant.

    Attributes:
        clock_us: what this process's clock showed, in microseconds since the epoch.
        storage_us: what the storage's clock showed at that moment, likewise.
        max_skew_ms: ``max.clock.skew.ms``.
    """

    def __init__(
        self, message: str, *, clock_us: int = 0, storage_us: int = 0, max_skew_ms: int = 0
    ) -> None:
        super().__init__(message)
        self.clock_us = clock_us
        self.storage_us = storage_us
        self.max_skew_ms = max_skew_ms


# --- configuration and arguments -----------------------------------------------------------------


class InvalidConfigurationError(SparkLogError):
    """A config key is unknown, or its value has the wrong type or is out of range.

    Attributes:
        key: the Kafka name of the key.
        nearest: the known key that looks most like it, if any.
    """

    def __init__(self, message: str, *, key: str = "", nearest: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.nearest = nearest


class InvalidOptionError(InvalidConfigurationError):
    """A Spark option is unknown, missing, contradictory, or has a bad value."""


class InvalidRecordError(SparkLogError):
    """The records do not have the form that the log takes (Kafka's InvalidRecordException)."""


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than the topic's ``max.message.bytes``; nothing was appended.

    Attributes:
        size_bytes: key, value and headers of the largest record.
        max_bytes: what the topic allows.
    """

    def __init__(self, message: str, *, size_bytes: int = -1, max_bytes: int = -1) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is further from now than the topic allows; nothing was appended.

    Attributes:
        timestamp_us: the first such timestamp, microseconds since the epoch.
    """

    def __init__(self, message: str, *, timestamp_us: int = -1) -> None:
        super().__init__(message)
        self.timestamp_us = timestamp_us


class InvalidTopicError(SparkLogError):
    """A topic name breaks Kafka's rules, or collides with a topic in ``.`` against ``_``.

    Attributes:
        topic: the name that was refused.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class InvalidPartitionsError(SparkLogError):
    """A number of partitions is not positive, or a partition number is out of range."""


class InvalidReplicationFactorError(SparkLogError):
    """The replication factor is not one that the registered brokers can hold."""


class TopicAlreadyExistsError(SparkLogError):
    """A topic of this name exists.

    Attributes:
        topic: its name.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class UnknownTopicOrPartitionError(SparkLogError):
    """There is no such topic, or it has no such partition.

    Attributes:
        topic: the name that was looked up.
        near: names of existing topics that look like it.
    """

    def __init__(self, message: str, *, topic: str = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.topic = topic
        self.near = near


# --- the log -------------------------------------------------------------------------------------


class CorruptRecordError(SparkLogError):
    """Stored bytes are damaged: a checksum, a length or a structure does not fit.

    Attributes:
        path: the damaged file, relative to the root.
        position: byte position of the record batch's block in the file, -1 if not known.
    """

    def __init__(self, message: str, *, path: str = "", position: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.position = position


class LogTruncatedError(CorruptRecordError):
    """A log ends before an offset that it had reached: files of it were removed (docs/adr/0019).

    Nothing is appended or read then: offsets would be used again for other records.

    Attributes:
        path: the log's directory, relative to the root.
        log_end_offset: where the log ends now.
        witnessed_offset: an end that it had; not always the last one.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        position: int = -1,
        log_end_offset: int = 0,
        witnessed_offset: int = 0,
    ) -> None:
        super().__init__(message, path=path, position=position)
        self.log_end_offset = log_end_offset
        self.witnessed_offset = witnessed_offset


class OffsetOutOfRangeError(SparkLogError):
    """An offset lies outside of what the partition holds.

    Attributes:
        offset: the offset asked for.
        log_start_offset: first offset that can be read.
        log_end_offset: the next offset to be written; reading from it waits for new records.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int = -1,
        log_start_offset: int = -1,
        log_end_offset: int = -1,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogEndOffsetMismatchError(SparkLogError):
    """A conditional append found the log's end elsewhere; nothing was appended.

    Attributes:
        expected: the log end offset that the caller built on.
        actual: the one that was found.
    """

    retriable = True

    def __init__(self, message: str, *, expected: int = -1, actual: int = -1) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class OutOfOrderSequenceError(SparkLogError):
    """An idempotent append does not follow its producer's last one; nothing was appended.

    Either an earlier append of this producer is missing, or this one is a repeat of one so old that
    the log has forgotten where it is (Kafka's OutOfOrderSequenceException).

    Attributes:
        producer_id: of the producer.
        base_sequence: what the append began with.
        expected_sequence: what it had to begin with.
    """

    def __init__(
        self,
        message: str,
        *,
        producer_id: int = -1,
        base_sequence: int = -1,
        expected_sequence: int = -1,
    ) -> None:
        super().__init__(message)
        self.producer_id = producer_id
        self.base_sequence = base_sequence
        self.expected_sequence = expected_sequence


class InvalidProducerEpochError(SparkLogError):
    """A newer incarnation of this producer has written: this one is fenced; nothing was appended.

    Attributes:
        producer_id: of the producer.
        producer_epoch: of the append.
        current_epoch: the newest one in the log.
    """

    def __init__(
        self,
        message: str,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        current_epoch: int = -1,
    ) -> None:
        super().__init__(message)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.current_epoch = current_epoch


class NotRepeatableError(SparkLogError):
    """A write came again with other records than at first: going on would lose or double some.

    Nothing was appended that an earlier attempt had not appended. Make what is written the same
    each time that it runs.
    """


class UnsupportedCompressionTypeError(InvalidConfigurationError):
    """``compression.type`` is not one that Arrow's IPC format can carry."""


class DataLossError(SparkLogError):
    """Records that a query was to read are not there (any more), or may not have been read.

    Raised where ``failOnDataLoss`` says so; otherwise the query goes on with what there is.

    Attributes:
        topic: in which they were.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class CommitFailedError(SparkLogError):
    """Offsets could not be committed; what was committed before still stands."""


# --- clients -------------------------------------------------------------------------------------


class IllegalStateError(SparkLogError):
    """The client is not in a state for this: closed, or used the other way; nothing was done."""


class KafkaTimeoutError(SparkLogError, TimeoutError):
    """Something was not done in the time given for it (Kafka's TimeoutException).

    Of a record: it was not acknowledged within ``delivery.timeout.ms``, and the message tells
    whether it may be in the log all the same.
    """

    retriable = True


class BufferExhaustedError(KafkaTimeoutError):
    """No room in a producer's buffer within ``max.block.ms``; the record was not taken.

    Attributes:
        size_bytes: what there was no room for.
        buffer_bytes: ``buffer.memory``.
    """

    def __init__(self, message: str, *, size_bytes: int = -1, buffer_bytes: int = -1) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.buffer_bytes = buffer_bytes


class SerializationError(SparkLogError):
    """A key or a value could not be made into bytes (Kafka's SerializationException).

    Attributes:
        topic: where the record was to go.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class NoOffsetForPartitionError(SparkLogError):
    """Nothing says where to begin: no position, no committed offset, no ``auto.offset.reset``.

    Attributes:
        topic: of the partition.
        partition: its number.
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class RecordDeserializationError(SparkLogError):
    """A deserializer refused a record (Kafka's RecordDeserializationException, KIP-334, KIP-1036).

    The consumer stays in front of the record: seek to ``offset + 1`` to leave it out.

    Attributes:
        topic: in which the record lies.
        partition: likewise.
        offset: of the record.
        origin: ``KEY`` or ``VALUE``: which of them was refused.
        key: the key's bytes; None without one.
        value: the value's bytes; None without one.
        headers: of the record: ``((name, bytes or None), …)``.
        timestamp: of the record, milliseconds since the epoch.
        reason: what the deserializer said.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        origin: str = "",
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int = -1,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.origin = origin
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.reason = reason


class WakeupError(SparkLogError):
    """`Consumer.wakeup` was called: what was waiting ends (Kafka's WakeupException)."""


class ConcurrentModificationError(SparkLogError):
    """Two threads used a consumer at once (``KafkaConsumer.acquire``); nothing was done."""


class InvalidGroupIdError(SparkLogError):
    """What was asked for needs a ``group_id``, and the consumer has none."""


class UnknownMemberIdError(SparkLogError):
    """The group does not have this member (any more): it left, or was expired. Join again.

    Attributes:
        group_id: the group's.
        member_id: who is not in it.
    """

    def __init__(self, message: str, *, group_id: str = "", member_id: str = "") -> None:
        super().__init__(message)
        self.group_id = group_id
        self.member_id = member_id


class FencedInstanceIdError(UnknownMemberIdError):
    """Another process has taken this static member's place (KIP-345). Do not join again.

    Attributes:
        instance_id: the ``group.instance.id`` that both have.
    """

    def __init__(
        self, message: str, *, group_id: str = "", member_id: str = "", instance_id: str = ""
    ) -> None:
        super().__init__(message, group_id=group_id, member_id=member_id)
        self.instance_id = instance_id


class IllegalGenerationError(SparkLogError):
    """A commit of an older generation than one that has begun; nothing was committed.

    Attributes:
        generation: of the commit.
        current: the newest one that has begun.
    """

    def __init__(self, message: str, *, generation: int = -1, current: int = -1) -> None:
        super().__init__(message)
        self.generation = generation
        self.current = current


class InconsistentGroupProtocolError(SparkLogError):
    """A member knows no assignor that all others of its group know; it did not join.

    Attributes:
        assignors: that it knows.
        common: that all others know.
    """

    def __init__(
        self, message: str, *, assignors: tuple[str, ...] = (), common: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.assignors = assignors
        self.common = common


class GroupMaxSizeReachedError(SparkLogError):
    """The group has ``group.max.size`` members; nobody joined."""


class GroupIdNotFoundError(SparkLogError):
    """There is no such group: it has neither members nor positions.

    Attributes:
        group_id: the id that was looked up.
    """

    def __init__(self, message: str, *, group_id: str = "") -> None:
        super().__init__(message)
        self.group_id = group_id


class GroupNotEmptyError(SparkLogError):
    """The group has members, so that its positions are theirs alone to change.

    Attributes:
        group_id: the group's.
        members: ids of some of them.
    """

    def __init__(self, message: str, *, group_id: str = "", members: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.group_id = group_id
        self.members = members


class GroupSubscribedToTopicError(GroupNotEmptyError):
    """Members of the group subscribe to the topic whose positions are to be deleted."""


class InvalidSessionTimeoutError(SparkLogError):
    """``session.timeout.ms`` is not within what groups allow; nobody joined."""


def check_unicode(
    what: str, text: str, error: type[SparkLogError] = InvalidConfigurationError
) -> None:
    """Check that a text can be stored: as UTF-8, as everything is.

    A Python string may hold lone surrogates: halves of characters, as bytes that are no UTF-8
    become in arguments of a command and in names of files. No log and no table takes them.

    Args:
        what: names the text in the error, such as ``config 'client.id'``.
        text: which.
        error: what is raised; takes a message.

    Raises:
        SparkLogError: it has a lone surrogate; the message shows it escaped.
    """
    try:
        text.encode()
    except UnicodeEncodeError as found:
        raise error(
            f"{what} is {text!a}: {text[found.start]!a} at {found.start} is half a "
            f"character (a lone surrogate), and cannot be stored; give Unicode text"
        ) from None


def nearest(word: str, known: Iterable[str], limit: int = 1) -> tuple[str, ...]:
    """Return up to ``limit`` of the ``known`` words that look most like ``word``, best first."""
    by_lower: dict[str, list[str]] = {}
    for name in known:
        by_lower.setdefault(name.lower(), []).append(name)
    close = get_close_matches(word.lower(), by_lower, n=limit, cutoff=0.6)
    return tuple(name for lower in close for name in by_lower[lower])[:limit]
