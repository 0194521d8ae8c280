"""All errors that spark-log raises, and its warning about settings without effect.

They have one base class, and the names of kafka-python where Kafka has the error. Each error has
fields besides its message, can be pickled (errors cross Spark's processes), and tells what a caller
can do (KIP-1050): ``retriable``, ``abortable``, ``fenced``, ``fatal``. At most one of them is True.

A constructor takes the complete message first, then keyword-only fields: this is what default
exception pickling needs (``cls(message)``, then ``__dict__``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar


class SparkLogError(Exception):
    """Base of all errors of this package.

    Attributes:
        retriable: True if the same call may succeed later.
        abortable: True if the transaction has to be aborted. The producer may then begin another.
        fenced: True if another process has taken the place of this client. Close it.
        fatal: True if this client can no longer be used. Close it, and make a new one.
    """

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fenced: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        """The message: the problem, the expected state, and the action to take."""
        return str(self.args[0])


class IgnoredOptionWarning(UserWarning):
    """A setting, an option or a column has no effect here, or not the effect that its name says.

    A program that was written for Kafka may keep the setting or leave it out.
    """


# --- storage -------------------------------------------------------------------------------------


class StorageError(SparkLogError):
    """The storage refused or failed an operation; nothing was written.

    Attributes:
        path: the path of the file or directory, relative to the root; or the root itself.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NotFoundError(StorageError):
    """The file does not exist."""


class AuthorizationError(StorageError):
    """The storage does not permit this to this user, or with these credentials.

    Nothing was changed. docs/security.md lists the rights that each role needs.
    """


class AlreadyExistsError(StorageError):
    """Put-if-absent found the name taken. The existing file was not changed."""


class StorageFullError(StorageError):
    """No space or quota is left. Nothing was written: free space and try again."""

    retriable = True


class StorageTimeoutError(StorageError):
    """The storage answered too slowly for its answer to be used.

    Nothing was done. Try again, or find out why the storage, or this process, is so slow.
    """

    retriable = True


class StorageUnavailableError(StorageError):
    """The storage does not answer, or asks the client to retry later. Nothing was done."""

    retriable = True


class UnknownOutcomeError(StorageError):
    """The answer to a write was lost: the write may or may not have taken effect.

    This is not a failure. Check whether the write took effect before you repeat it.

    Attributes:
        is_visible: True if the write is visible, but may not survive a crash of the machine.
            Checking for it does not help then.
    """

    retriable = True

    def __init__(self, message: str, *, path: str = "", is_visible: bool = False) -> None:
        super().__init__(message, path=path)
        self.is_visible = is_visible


class UnsupportedStoreError(StorageError):
    """The storage cannot promise put-if-absent, or no backend supports the URL's scheme."""


class RootNotFoundError(StorageError):
    """The URL is not a spark-log root: it has no ``meta.properties``."""


class InvalidRootError(StorageError):
    """The URL is not a root of this version, and cannot become one."""


class ClockSkewError(SparkLogError):
    """The clocks of this process and of the storage differ too much to delete or expire anything.

    Nothing was deleted. Set the machine's clock (NTP) and try again; or raise
    ``max.clock.skew.ms`` if the difference is intended.

    Attributes:
        clock_us: the time of this process, in microseconds since the epoch.
        storage_us: the time of the storage at that moment, in microseconds since the epoch.
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
        nearest: the most similar known key, None without one.
    """

    def __init__(self, message: str, *, key: str = "", nearest: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.nearest = nearest


class UnsupportedVersionError(SparkLogError):
    """The cluster uses a feature that this release does not know (KIP-584).

    Attributes:
        feature: the feature's name.
        level: the feature's finalized level.
        release: the first release of spark-log that knows the level; empty if not known.
    """

    def __init__(
        self, message: str, *, feature: str = "", level: int = -1, release: str = ""
    ) -> None:
        super().__init__(message)
        self.feature = feature
        self.level = level
        self.release = release


class InvalidUpdateVersionError(SparkLogError):
    """A feature cannot get this level: the level is not known, or lower than the finalized one.

    Attributes:
        feature: the feature's name.
    """

    def __init__(self, message: str, *, feature: str = "") -> None:
        super().__init__(message)
        self.feature = feature


class UnacceptableCredentialError(SparkLogError):
    """A credential of a user cannot be stored: no name, or an iteration count out of range."""


class DuplicateResourceError(SparkLogError):
    """One call names the same resource twice, such as a user's credential for one mechanism."""


class ResourceNotFoundError(SparkLogError):
    """A resource does not exist, such as a user's credential."""


class InvalidOptionError(InvalidConfigurationError):
    """A Spark option is unknown, missing, contradictory, or has a bad value."""


class InvalidRecordError(SparkLogError):
    """The log cannot append the records in this form (Kafka's InvalidRecordException).

    Attributes:
        record_indexes: the positions of the refused records in their batch, from 0; empty if they
            are not known, or if no single record is at fault.
    """

    def __init__(self, message: str, *, record_indexes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.record_indexes = tuple(record_indexes)


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than the topic's ``max.message.bytes``; nothing was appended.

    Attributes:
        size_bytes: the size of the largest record: its key, value and headers.
        max_bytes: the topic's ``max.message.bytes``.
    """

    def __init__(
        self,
        message: str,
        *,
        size_bytes: int = -1,
        max_bytes: int = -1,
        record_indexes: Sequence[int] = (),
    ) -> None:
        super().__init__(message, record_indexes=record_indexes)
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp differs from now by more than the topic allows; nothing was appended.

    Attributes:
        timestamp_us: the first timestamp that was refused, microseconds since the epoch.
    """

    def __init__(
        self, message: str, *, timestamp_us: int = -1, record_indexes: Sequence[int] = ()
    ) -> None:
        super().__init__(message, record_indexes=record_indexes)
        self.timestamp_us = timestamp_us


class InvalidTopicError(SparkLogError):
    """A topic name breaks Kafka's rules, or differs from another topic only in ``.`` and ``_``.

    Attributes:
        topic: the name that was refused.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class InvalidPartitionsError(SparkLogError):
    """The number of partitions is not positive, or a partition number is out of range."""


class InvalidReplicationFactorError(SparkLogError):
    """The registered brokers do not support this replication factor, or it must not be changed.

    Attributes:
        current: the replication factor that must not be changed; -1 if it is the brokers' number.
    """

    def __init__(self, message: str, *, current: int = -1) -> None:
        super().__init__(message)
        self.current = current


class InvalidReplicaAssignmentError(SparkLogError):
    """The brokers that were chosen for the replicas of partitions cannot hold them.

    Attributes:
        partition: the number of the first refused partition; -1 if it is the whole assignment.
    """

    def __init__(self, message: str, *, partition: int = -1) -> None:
        super().__init__(message)
        self.partition = partition


class BrokerIdNotRegisteredError(SparkLogError):
    """No broker with this id is registered.

    Attributes:
        broker_id: the id that was looked up.
    """

    def __init__(self, message: str, *, broker_id: int = -1) -> None:
        super().__init__(message)
        self.broker_id = broker_id


class DuplicateBrokerRegistrationError(SparkLogError):
    """A broker with this id, or with this root, is registered.

    Attributes:
        broker_id: the id of the registered broker.
    """

    def __init__(self, message: str, *, broker_id: int = -1) -> None:
        super().__init__(message)
        self.broker_id = broker_id


class ReplicationError(SparkLogError):
    """The replicas of a partition do not permit the requested operation.

    Attributes:
        topic: the partition's topic.
        partition: its number; -1 if it is not known.
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class LeaderNotAvailableError(ReplicationError):
    """The partition has no leader: the brokers of all replicas that may lead are fenced."""

    retriable = True


class StripesChangedError(LeaderNotAvailableError):
    """The topic gets another number of stripes, or has got it since its log was opened.

    Nothing was appended. Read the metadata again, and open the log anew.
    """


class NotEnoughReplicasError(ReplicationError):
    """Fewer replicas are in sync than ``min.insync.replicas``. Nothing was appended."""

    retriable = True


class NotEnoughReplicasAfterAppendError(ReplicationError):
    """Records were appended, and then fewer replicas held them than ``min.insync.replicas``.

    They may be lost, or appended twice by a retry of a producer that is not idempotent.
    """

    retriable = True


class ElectionNotNeededError(ReplicationError):
    """The partition has the leader that the election would give it."""


class PreferredLeaderNotAvailableError(ReplicationError):
    """The preferred replica cannot lead: out of sync, fenced, or too few would stay in sync."""

    retriable = True


class EligibleLeadersNotAvailableError(ReplicationError):
    """No replica may lead the partition."""

    retriable = True


class NoReassignmentInProgressError(ReplicationError):
    """The replicas of the partition are not being reassigned."""


class TopicAlreadyExistsError(SparkLogError):
    """A topic of this name exists.

    Attributes:
        topic: the topic's name.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class UnknownTopicOrPartitionError(SparkLogError):
    """The topic does not exist, or has no such partition.

    Attributes:
        topic: the name that was looked up.
        near: the names of existing topics with similar names.
    """

    def __init__(self, message: str, *, topic: str = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.topic = topic
        self.near = near


# --- the log -------------------------------------------------------------------------------------


class CorruptRecordError(SparkLogError):
    """Stored bytes are damaged: a checksum, a length or a structure is wrong.

    Attributes:
        path: the damaged file, relative to the root.
        position: the byte position of the record batch's block in the file; -1 if not known.
    """

    def __init__(self, message: str, *, path: str = "", position: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.position = position


class LogTruncatedError(CorruptRecordError):
    """A log ends before an offset that it had reached: some of its files are missing (ADR 19).

    The log refuses to append and read, because offsets would be used again for other records.

    Attributes:
        path: the log's directory, relative to the root.
        log_end_offset: the end of the log now.
        witnessed_offset: an earlier log end offset; not always the last one.
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
    """The requested offset is outside of the partition's log.

    Attributes:
        offset: the requested offset.
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written; a read from it waits for new records.
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
    """A conditional append found another log end offset than expected; nothing was appended.

    Attributes:
        expected: the log end offset that the caller expected.
        actual: the log end offset that was found.
    """

    retriable = True

    def __init__(self, message: str, *, expected: int = -1, actual: int = -1) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class LeaderEpochError(SparkLogError):
    """The leader epoch of an append differs from that of the log; nothing was appended.

    Attributes:
        leader_epoch: the leader epoch of the append.
        log_epoch: the leader epoch of the last batch in the log; None if the log was emptied.
    """

    retriable = True

    def __init__(
        self, message: str, *, leader_epoch: int = -1, log_epoch: int | None = None
    ) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch
        self.log_epoch = log_epoch


class FencedLeaderEpochError(LeaderEpochError):
    """The log has a newer leader epoch: read the metadata again, and append to the new leader."""


class UnknownLeaderEpochError(LeaderEpochError):
    """The barrier of the append's leader epoch is not in the log yet."""


class OutOfOrderSequenceError(SparkLogError):
    """An idempotent append does not follow its producer's last append; nothing was appended.

    Either an earlier append of this producer is missing, or this is the retry of an append so old
    that the log does not remember its offsets (Kafka's OutOfOrderSequenceException).

    Attributes:
        producer_id: the producer's id.
        base_sequence: the first sequence number of the append.
        expected_sequence: the sequence number that was expected.
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
    """This producer is fenced: a producer with its id and a newer epoch has appended.

    Nothing was appended.

    Attributes:
        producer_id: the producer's id.
        producer_epoch: the epoch of the append.
        current_epoch: the newest epoch in the log.
    """

    fenced = True

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
    """A write was repeated with other records than before, so records might be lost or doubled.

    Nothing was appended in addition to the records of an earlier attempt. Write the same records
    each time that the write runs.
    """


class UnsupportedCompressionTypeError(InvalidConfigurationError):
    """Arrow's IPC format does not support this ``compression.type``."""


class DataLossError(SparkLogError):
    """Records that a query had to read do not exist (any more), or may not have been read.

    Raised if ``failOnDataLoss`` is true; otherwise the query continues with the existing records.

    Attributes:
        topic: the topic of the records.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class CommitFailedError(SparkLogError):
    """Offsets could not be committed; earlier commits are still valid."""


# --- clients -------------------------------------------------------------------------------------


class IllegalStateError(SparkLogError):
    """The client's state does not permit this call: it is closed, for example; nothing done."""


class KafkaTimeoutError(SparkLogError, TimeoutError):
    """A call did not end within its timeout (Kafka's TimeoutException).

    For a record: it was not acknowledged within ``delivery.timeout.ms``, and is not in the log. If
    the log may contain it, the error is `UnknownOutcomeError`.
    """

    retriable = True


class BufferExhaustedError(KafkaTimeoutError):
    """A producer's buffer had no room within ``max.block.ms``; the record was not accepted.

    Attributes:
        size_bytes: the size of the record.
        buffer_bytes: the producer's ``buffer.memory``.
    """

    def __init__(self, message: str, *, size_bytes: int = -1, buffer_bytes: int = -1) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.buffer_bytes = buffer_bytes


class SerializationError(SparkLogError):
    """A key or a value could not be serialized (Kafka's SerializationException).

    Attributes:
        topic: the topic that the record was sent to.
    """

    def __init__(self, message: str, *, topic: str = "") -> None:
        super().__init__(message)
        self.topic = topic


class NoOffsetForPartitionError(SparkLogError):
    """A partition has no position, no committed offset, and no ``auto.offset.reset``.

    Attributes:
        topic: the partition's topic.
        partition: the partition's number.
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class RecordDeserializationError(SparkLogError):
    """A deserializer raised an error (Kafka's RecordDeserializationException, KIP-334, KIP-1036).

    The consumer's position stays at the record: seek to ``offset + 1`` to skip it.

    Attributes:
        topic: the record's topic.
        partition: the record's partition.
        offset: the record's offset.
        origin: ``KEY`` or ``VALUE``: the part that was not deserialized.
        key: the key's bytes; None without a key.
        value: the value's bytes; None without a value.
        headers: the record's headers: ``((name, bytes or None), …)``.
        timestamp: the record's timestamp, milliseconds since the epoch.
        reason: the message of the deserializer's error.
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
    """`Consumer.wakeup` was called, which ends a waiting call (Kafka's WakeupException)."""


class ConcurrentModificationError(SparkLogError):
    """Two threads used a consumer at once (``KafkaConsumer.acquire``); nothing was done."""


class InvalidGroupIdError(SparkLogError):
    """The call needs a ``group_id``, and the consumer has none."""


class UnknownMemberIdError(SparkLogError):
    """The group does not have this member (any more): it left or expired. Join again.

    Attributes:
        group_id: the group's id.
        member_id: the id of the unknown member.
    """

    def __init__(self, message: str, *, group_id: str = "", member_id: str = "") -> None:
        super().__init__(message)
        self.group_id = group_id
        self.member_id = member_id


class FencedInstanceIdError(UnknownMemberIdError):
    """Another process has taken over this static member (KIP-345). Do not join again.

    Attributes:
        instance_id: the ``group.instance.id`` of both processes.
    """

    fenced = True

    def __init__(
        self, message: str, *, group_id: str = "", member_id: str = "", instance_id: str = ""
    ) -> None:
        super().__init__(message, group_id=group_id, member_id=member_id)
        self.instance_id = instance_id


class IllegalGenerationError(SparkLogError):
    """A commit was made in an old generation of the group; nothing was committed.

    Attributes:
        generation: the generation of the commit.
        current: the newest generation.
    """

    def __init__(self, message: str, *, generation: int = -1, current: int = -1) -> None:
        super().__init__(message)
        self.generation = generation
        self.current = current


class UnstableOffsetCommitError(SparkLogError):
    """A transaction that commits offsets of the group is not decided yet; try again (KIP-447).

    Attributes:
        group_id: the group's id.
        transactional_id: the ``transactional.id`` of the transaction.
    """

    retriable = True

    def __init__(self, message: str, *, group_id: str = "", transactional_id: str = "") -> None:
        super().__init__(message)
        self.group_id = group_id
        self.transactional_id = transactional_id


class InconsistentGroupProtocolError(SparkLogError):
    """A member supports no assignor that all other members support; it did not join.

    Attributes:
        assignors: the assignors that the member supports.
        common: the assignors that all other members support.
    """

    def __init__(
        self, message: str, *, assignors: tuple[str, ...] = (), common: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.assignors = assignors
        self.common = common


class GroupMaxSizeReachedError(SparkLogError):
    """The group already has ``group.max.size`` members; the member did not join."""


class GroupIdNotFoundError(SparkLogError):
    """The group does not exist: it has neither members nor committed offsets.

    Attributes:
        group_id: the id that was looked up.
    """

    def __init__(self, message: str, *, group_id: str = "") -> None:
        super().__init__(message)
        self.group_id = group_id


class GroupNotEmptyError(SparkLogError):
    """The group has members, so only they may change its committed offsets.

    Attributes:
        group_id: the group's id.
        members: the ids of some members.
    """

    def __init__(self, message: str, *, group_id: str = "", members: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.group_id = group_id
        self.members = members


class GroupSubscribedToTopicError(GroupNotEmptyError):
    """Members of the group subscribe to the topic whose committed offsets are to be deleted."""


class InvalidSessionTimeoutError(SparkLogError):
    """``session.timeout.ms`` is outside of the range that groups allow; the member did not join."""


# --- transactions --------------------------------------------------------------------------------


class TransactionError(SparkLogError):
    """Base of the errors of transactions; the call changed nothing.

    Attributes:
        transactional_id: the ``transactional.id``.
    """

    def __init__(self, message: str, *, transactional_id: str = "") -> None:
        super().__init__(message)
        self.transactional_id = transactional_id


class ConcurrentTransactionsError(TransactionError):
    """An earlier transaction of this ``transactional.id`` has not ended yet; try again."""

    retriable = True


class TransactionAbortableError(TransactionError):
    """The transaction can only be aborted: its ``transaction.timeout.ms`` passed, for example.

    Abort it. The producer may then begin another one.
    """

    abortable = True


class TransactionAbortedError(TransactionError):
    """The record was dropped: its transaction was aborted before the record was appended."""


class ProducerFencedError(TransactionError):
    """The epoch of this producer has passed: its transaction was decided, or it was replaced.

    Attributes:
        producer_id: the producer's id.
        producer_epoch: the epoch of the call.
    """

    fenced = True

    def __init__(
        self,
        message: str,
        *,
        transactional_id: str = "",
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        super().__init__(message, transactional_id=transactional_id)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class InvalidTxnStateError(TransactionError):
    """The transaction's state does not permit the call (Kafka's InvalidTxnStateException).

    The message says which state it is, and which call was expected.
    """

    fatal = True


class TransactionalIdNotFoundError(TransactionError):
    """A ``transactional.id`` was never used, or has expired."""


class InvalidTxnTimeoutError(TransactionError):
    """``transaction.timeout.ms`` is above the cluster's ``transaction.max.timeout.ms``.

    Attributes:
        timeout_ms: ``transaction.timeout.ms``.
        max_timeout_ms: ``transaction.max.timeout.ms``.
    """

    fatal = True

    def __init__(
        self,
        message: str,
        *,
        transactional_id: str = "",
        timeout_ms: int = 0,
        max_timeout_ms: int = 0,
    ) -> None:
        super().__init__(message, transactional_id=transactional_id)
        self.timeout_ms = timeout_ms
        self.max_timeout_ms = max_timeout_ms


def check_unicode(
    what: str, text: str, error: type[SparkLogError] = InvalidConfigurationError
) -> None:
    """Check that a string can be encoded as UTF-8, so that it can be stored.

    A Python string may contain lone surrogates, which are halves of characters: Python makes them
    of bytes that are not UTF-8 in command line arguments and file names. They cannot be stored.

    Args:
        what: the string's name in the error message, such as ``config 'client.id'``.
        text: the string to check.
        error: the class of the error to raise; it is called with a message.

    Raises:
        SparkLogError: the string has a lone surrogate; the message shows it escaped.
    """
    try:
        text.encode()
    except UnicodeEncodeError as found:
        raise error(
            f"{what} is {text!a}: {text[found.start]!a} at {found.start} is half a "
            f"character (a lone surrogate), and cannot be stored; give Unicode text"
        ) from None


def nearest(word: str, known: Iterable[str], limit: int = 1) -> tuple[str, ...]:
    """Return up to ``limit`` of the ``known`` words, the most similar to ``word`` first."""
    by_lower: dict[str, list[str]] = {}
    for name in known:
        by_lower.setdefault(name.lower(), []).append(name)
    close = get_close_matches(word.lower(), by_lower, n=limit, cutoff=0.6)
    return tuple(name for lower in close for name in by_lower[lower])[:limit]
