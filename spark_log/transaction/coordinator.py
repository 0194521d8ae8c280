"""Coordinates a transactional id from within its clients: begin, register, decide, complete.

There is no coordinator process. Each client makes a change by one conditional append to the state
log (`TransactionStateLog`). A decided transaction is Kafka's ``PrepareCommit`` or ``PrepareAbort``;
any client that meets one puts its markers, commits its offsets, and completes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from spark_log.cluster import Cluster
from spark_log.config import ClusterConfig
from spark_log.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import decisions
from spark_log.transaction.markers import MARKERS_AT_ONCE, MarkerStripe, OpenLog, put_markers
from spark_log.transaction.producers import forget_producer, record_producer
from spark_log.transaction.records import TransactionRecord
from spark_log.transaction.state import (
    LAST_EPOCH,
    TopicIdPartition,
    TransactionMetadata,
    TransactionOffset,
)
from spark_log.transaction.state_log import TransactionStateLog
from spark_log.util import Clock

_log = logging.getLogger(__name__)

_QUICK_MS: Final = 10.0
"""Maximum duration of a decision on a fast storage, where the caller's thread puts the markers:
threads would wait for each other there. On a local disk ten markers took twice as long in threads.
"""

_BATCH_TIMEOUT_MS: Final = 900_000

CommitOffsets = Callable[[TransactionMetadata], None]
"""Commits the offsets of a committed transaction to their groups. It may be repeated."""


class TransactionCoordinator:
    """Reads and changes one transactional id. For one thread at a time.

    A transaction of one producer costs, one after the other, one request to register its
    partitions, one to decide, one for the markers of all partitions, and one to complete it
    (``completes_later`` saves that one), as long as nobody else changes the state.

    A crash at any point leaves a transaction that is ongoing, which others abort after its
    timeout; or one that is decided, which others complete.

    Attributes:
        transactional_id: the ``transactional.id``.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        clock: Clock | None = None,
        open_log: OpenLog | None = None,
        commit_offsets: CommitOffsets | None = None,
        markers_at_once: int = MARKERS_AT_ONCE,
        completes_later: bool = False,
    ) -> None:
        """Return the coordinator of a transactional id; nothing is read yet.

        Args:
            cluster: the opened root.
            transactional_id: any string.
            clock: gives records their timestamps; None for the cluster's.
            open_log: the function that returns logs that are open already, whose end is known: a
                marker then costs one put. Threads of this coordinator use them during a call.
            commit_offsets: the function that commits a decided transaction's offsets to their
                groups. Without it a transaction with offsets is neither decided nor completed.
            markers_at_once: the maximum number of partitions that get their markers at the same
                time; with 1, or on a fast storage, the caller's thread puts all of them.
            completes_later: whether the record that begins the next transaction also completes this
                one, which saves an append. Call `record_completion` after the last transaction.
        """
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._clock = clock or cluster.clock
        self._log = TransactionStateLog(cluster.store, transactional_id, self._clock)
        self._open_log = open_log
        self._commit_offsets = commit_offsets
        self._markers_at_once = markers_at_once
        self._completes_later = completes_later
        # The decided transaction of which only the record of its completion is missing.
        self._applied: int | None = None
        # The stripes that got the last markers: whoever takes over may complete many transactions
        # in turn, and begins to append afterwards. A cluster keeps no stripe that nobody uses.
        self._marked_stripes: dict[str, MarkerStripe] = {}
        # The last producer id that was allocated for an owner.
        self._new_owner_id: int | None = None

    def __repr__(self) -> str:
        return f"<TransactionCoordinator of {self.transactional_id!r}, {self.state.state}>"

    @property
    def state(self) -> TransactionMetadata:
        """The state after the last read of the state log; makes no request."""
        return self._log.state

    def refresh(self) -> TransactionMetadata:
        """Read the state log and return the present state; costs one lookup if nothing is new.

        Raises:
            CorruptRecordError: the state log is damaged.
            StorageError: it cannot be read.
        """
        self._log.replay()
        return self.state

    # --- identities ------------------------------------------------------------------------------

    def initialize(
        self,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        """Begin a new epoch of the owner, which fences the previous owner (``InitProducerId``).

        Before that, an ongoing transaction is aborted, and a decided one is completed.

        Args:
            timeout_ms: ``transaction.timeout.ms``.
            expected: the identity of the only client that may continue (KIP-360); None for any.
                With it the call may be repeated.
            check: called with each decision, also after another process was first; raises a
                `SparkLogError` to change nothing.

        Returns:
            The new owner.

        Raises:
            InvalidTxnTimeoutError: the timeout is above ``transaction.max.timeout.ms``.
            ProducerFencedError: another process has taken over from the expected owner.
            UnknownOutcomeError: there may be a new epoch; call again.
            StorageError: a marker could not be put, or the storage does not answer; call again.
        """
        self._check_timeout(timeout_ms)
        return self._initialize(timeout_ms, expected, check=check)

    def _initialize(
        self,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        renews: bool = False,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        self.refresh()
        owner: ProducerIdAndEpoch | None = None

        def decide(state: TransactionMetadata) -> TransactionRecord | None:
            nonlocal owner
            if check is not None:
                check()
            before = self._with_completion(state)
            record = decisions.initialize(
                before, timeout_ms, self._new_owner_id, expected, renews=renews
            )
            # Not the owner after the append, who may be a later one.
            owner = before.owner if record is None else before.replay(record).owner
            return record

        while True:
            if self.state.needs_producer_id:
                self._new_owner_id = self._new_producer_id(self._new_owner_id)
            try:
                self._log.commit(decide)
            except ConcurrentTransactionsError:
                self.expire(self.state.transaction, "another producer takes over")
                self.complete()
            except InvalidTxnStateError:
                if not self.state.needs_producer_id:
                    raise
            else:
                assert owner is not None
                _log.info(
                    "transactional id %r: its producer is %d, epoch %d, with a timeout of %d ms",
                    self.transactional_id,
                    owner.producer_id,
                    owner.producer_epoch,
                    timeout_ms,
                )
                return owner

    def renew_owner(self, owner: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Return the owner, or the one that replaces it because its epochs are nearly used up.

        Call this before the owner's next transaction begins. `commit` and `abort` replace such an
        owner themselves, but return it if that failed.

        Raises:
            ProducerFencedError: another process has taken over.
            StorageError: it could not be replaced; call again.
        """
        if owner.producer_epoch < LAST_EPOCH:
            return owner
        return self._initialize(self.state.timeout_ms, owner, renews=True)

    def join(
        self,
        owner: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition] = (),
        groups: Collection[str] = (),
    ) -> ProducerIdAndEpoch:
        """Add a participant, with its first registrations, to the owner's transaction.

        This begins a transaction if none is ongoing.

        Args:
            owner: the owner that the participant writes for.
            partitions: the partitions that the participant may write to.
            groups: the consumer groups whose offsets the participant may send.

        Returns:
            The participant's identity.

        Raises:
            ProducerFencedError: another owner has begun, or the transaction is decided.
            TransactionAbortableError: the transaction was aborted by others.
            UnknownOutcomeError: there may be a participant that nobody uses, which is harmless.
            StorageError: the storage does not answer; call again.
        """
        if self.state.owner is None:
            self.refresh()
        new_id: int | None = None
        joined: ProducerIdAndEpoch | None = None

        def decide(state: TransactionMetadata) -> TransactionRecord:
            nonlocal joined
            free = state.free_producer_id()
            producer_id = new_id if free is None else free
            if producer_id is None:
                raise _NoProducerIdError
            record = decisions.join(state, owner, producer_id, partitions, groups)
            epoch = state.producers.get(producer_id, 0)
            joined = ProducerIdAndEpoch(producer_id, epoch)
            return record

        while True:
            if self.state.free_producer_id() is None:
                new_id = self._new_producer_id(new_id)
            with suppress(_NoProducerIdError):
                self._change(decide)
                assert joined is not None
                return joined

    # --- transactions ----------------------------------------------------------------------------

    def register(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition] = (),
        groups: Collection[str] = (),
        check: Callable[[], None] | None = None,
    ) -> None:
        """Register partitions and groups before a participant's first write to them; one append.

        The owner begins a transaction with its first registration. If everything is registered
        already, this makes no request. An earlier transaction that is decided is completed first.

        Args:
            producer: the participant.
            partitions: the partitions.
            groups: the consumer groups.
            check: called with each decision; raises a `SparkLogError` to change nothing.

        Raises:
            ProducerFencedError: the epoch has passed: the transaction is decided.
            TransactionAbortableError: the owner's transaction was aborted by others.
            InvalidTxnStateError: the owner's epochs are used up: see `renew_owner`.
            UnknownOutcomeError: they may be registered; call again.
            StorageError: they are not registered, or an earlier transaction could not be completed.
        """
        present = self.state.participants.get(producer.producer_id)
        if (
            self.state.is_ongoing
            and present is not None
            and present.producer == producer
            and present.partitions.issuperset(partitions)
            and present.groups.issuperset(groups)
        ):
            return
        self._change(lambda state: decisions.register(state, producer, partitions, groups), check)

    def send_offsets(
        self,
        producer: ProducerIdAndEpoch,
        offsets: Collection[TransactionOffset],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Keep a participant's offsets in the state; they are committed with the transaction.

        One append. The groups are registered, too.

        Args:
            producer: the participant.
            offsets: the offsets.
            check: called with each decision; raises a `SparkLogError` to change nothing.

        Raises:
            ProducerFencedError: the epoch has passed: the transaction is decided.
            TransactionAbortableError: the owner's transaction was aborted by others.
            InvalidTxnStateError: offsets cannot be committed here.
            UnknownOutcomeError: they may be kept; call again.
            StorageError: they are not kept.
        """
        self._check_commits_offsets(offsets)
        self._change(lambda state: decisions.send_offsets(state, producer, offsets), check)

    def commit(
        self,
        owner: ProducerIdAndEpoch,
        counting: Collection[ProducerIdAndEpoch] | None = None,
        offsets: Collection[TransactionOffset] = (),
        batch_id: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        """Decide to commit, then put the markers and complete the transaction.

        A failure after the decision raises nothing. A marker that cannot be put is logged and
        counted: the decision stays, and the next call, or a reader that is held up, puts it.

        Args:
            owner: the owner.
            counting: the participants whose records are committed; None for the owner alone. The
                records of all others are aborted.
            offsets: the offsets to commit; each one's group is registered by a counting
                participant.
            batch_id: the micro-batch of the transaction; higher than that of any earlier one.
            check: called with each decision; raises a `SparkLogError` to change nothing.

        Returns:
            The owner's identity in its next transaction.

        Raises:
            TransactionAbortableError: it was aborted by others.
            ProducerFencedError: another owner has begun.
            InvalidTxnStateError: no transaction has begun, the micro-batch is committed, or a
                participant or a group is not registered.
            UnknownOutcomeError: it may be committed; call again.
            StorageError: it is not committed; call again.
        """
        self._check_commits_offsets(offsets)
        began_ms = self._clock.monotonic_ms()
        chosen = (owner,) if counting is None else tuple(counting)
        self._change(lambda state: decisions.commit(state, owner, chosen, offsets, batch_id), check)
        return self._after_decision(owner, began_ms)

    def abort(
        self, owner: ProducerIdAndEpoch, check: Callable[[], None] | None = None
    ) -> ProducerIdAndEpoch:
        """Decide to abort, then put the markers and complete the transaction, as `commit` does.

        Args:
            owner: the owner.
            check: called with each decision; raises a `SparkLogError` to change nothing.

        Returns:
            The owner's identity in its next transaction; the same one if nothing had begun.

        Raises:
            ProducerFencedError: another owner has begun.
            InvalidTxnStateError: the transaction is committed.
            UnknownOutcomeError: it may be aborted; call again.
            StorageError: it is not aborted; call again.
        """
        began_ms = self._clock.monotonic_ms()

        def decide(state: TransactionMetadata) -> TransactionRecord | None:
            if check is not None:
                check()
            return decisions.abort(state, owner)

        if self._log.commit(decide).owner == owner:
            return owner
        return self._after_decision(owner, began_ms)

    def expire(self, transaction: int, why: str = "it has passed its timeout") -> None:
        """Decide to abort an ongoing transaction that its producer does not end.

        Args:
            transaction: the transaction's number; any other transaction, and one that is decided,
                is left alone.
            why: the reason, for the log.

        Raises:
            UnknownOutcomeError: it may be aborted; call again.
            StorageError: it is not aborted.
        """
        record: TransactionRecord | None = None

        def decide(state: TransactionMetadata) -> TransactionRecord | None:
            nonlocal record
            record = decisions.expire(state, transaction)
            return record

        self._log.commit(decide)
        if record is not None:
            _log.info(
                "transactional id %r: this process has aborted transaction %d: %s",
                self.transactional_id,
                transaction,
                why,
            )

    def complete(self) -> None:
        """Complete a decided transaction: put its missing markers, commit its offsets, record that.

        Does nothing if `state` has no decided transaction. Any number of processes may call it at
        the same time.

        Raises:
            SparkLogError: a marker could not be put, or the completion could not be stored; the
                decision stays.
        """
        self._apply_decision(self._markers_at_once)
        self.record_completion()

    def record_completion(self) -> None:
        """Record that the transaction is complete whose markers and offsets were written here.

        Does nothing if that is recorded, or if another client has begun the next one.

        Raises:
            UnknownOutcomeError: it may be complete; call again.
            StorageError: it is not complete.
        """
        applied = self._applied
        if applied is not None:
            self._log.commit(lambda state: decisions.complete(state, applied))
            self._applied = None

    def _apply_decision(self, markers_at_once: int) -> None:
        """Put the missing markers of a decided transaction, and commit its offsets."""
        state = self.state
        if not state.is_prepared or state.transaction == self._applied:
            return
        put_markers(
            self._cluster,
            state,
            open_log=self._open_log,
            at_once=markers_at_once,
            kept=self._marked_stripes,
        )
        assert state.decision is not None
        if state.decision.offsets:
            if self._commit_offsets is None:
                raise ConcurrentTransactionsError(
                    f"transaction {state.transaction} of {self.transactional_id!r} is complete "
                    f"when its offsets are committed, which a producer or a consumer does",
                    transactional_id=self.transactional_id,
                )
            self._commit_offsets(state)
        self._applied = state.transaction
        _log.debug(
            "transactional id %r: transaction %d has its markers in %d partitions, and %d offsets",
            self.transactional_id,
            state.transaction,
            sum(len(participant.partitions) for participant in state.participants.values()),
            len(state.decision.offsets),
        )

    def forget(self, revision: int) -> bool:
        """Forget the producer ids of this transactional id, which has expired.

        A producer that still has one of them is fenced. A crash leaves files of producer ids that
        nobody uses.

        Args:
            revision: the revision of the expired state; a later state is left alone.

        Returns:
            Whether they are forgotten.

        Raises:
            StorageError: they may not be forgotten, or some files may be left.
        """
        before = self.refresh()
        after = self._log.commit(lambda state: decisions.forget(state, revision))
        if before.owner is None or after.owner is not None:
            return False
        _log.info(
            "transactional id %r: unused, its producer ids are forgotten", self.transactional_id
        )
        for producer_id in (before.owner.producer_id, *before.producers):
            forget_producer(self._cluster.store, producer_id)
        config = self._cluster.image().cluster_config()
        self._log.trimmer.max_clock_skew_ms = config.max_clock_skew_ms
        self._log.trimmer.trim()
        return True

    def _change(
        self,
        decide: Callable[[TransactionMetadata], TransactionRecord | None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Change the state, after completing an earlier transaction that is decided."""

        def decide_with_time(state: TransactionMetadata) -> TransactionRecord | None:
            if check is not None:
                check()
            record = decide(self._with_completion(state))
            if record is None or record.transaction == state.transaction:
                return record
            # wall clock: shown to users; nothing is decided by it
            return record.model_copy(update={"start_time_us": self._clock.time_us()})

        while True:
            try:
                self._log.commit(decide_with_time)
            except ConcurrentTransactionsError as error:
                _log.debug("completing the earlier transaction first: %s", error)
                self.complete()
            else:
                return

    def _with_completion(self, state: TransactionMetadata) -> TransactionMetadata:
        """Return the state with its transaction complete, if its decision was applied here."""
        is_applied = state.is_prepared and state.transaction == self._applied
        return decisions.completed_state(state) if is_applied else state

    def _after_decision(self, owner: ProducerIdAndEpoch, began_ms: float) -> ProducerIdAndEpoch:
        suppressed, path = self._cluster.suppressed, self._log.directory
        is_quick = self._clock.monotonic_ms() - began_ms < _QUICK_MS
        # Suppress every failure from here on: an error would say that nothing is decided.
        with suppressed.suppress("transaction end", path, Exception):
            self._apply_decision(1 if is_quick else self._markers_at_once)
            if not self._completes_later:
                self.record_completion()
        following = replace(owner, producer_epoch=owner.producer_epoch + 1)
        if following.producer_epoch >= LAST_EPOCH:
            # One epoch is left: if this fails, it is retried after the next transaction.
            with suppressed.suppress("producer id", path, Exception):
                return self._initialize(self.state.timeout_ms, following, renews=True)
        return following

    def _check_commits_offsets(self, offsets: Collection[TransactionOffset]) -> None:
        if offsets and self._commit_offsets is None:
            raise InvalidTxnStateError(
                f"transactional id {self.transactional_id!r}: offsets cannot be committed here",
                transactional_id=self.transactional_id,
            )

    def _check_timeout(self, timeout_ms: int) -> None:
        config = self._cluster.image().cluster_config()
        self._log.trimmer.max_clock_skew_ms = config.max_clock_skew_ms
        most_ms = config.transaction_max_timeout_ms
        if timeout_ms > most_ms:
            raise InvalidTxnTimeoutError(
                f"transaction.timeout.ms is {timeout_ms}, more than the cluster allows: lower it "
                f"to at most {most_ms}, or raise the cluster's transaction.max.timeout.ms",
                transactional_id=self.transactional_id,
                timeout_ms=timeout_ms,
                max_timeout_ms=most_ms,
            )

    def _new_producer_id(self, last: int | None) -> int:
        """Return the last allocated id if it is still new, else another one.

        Raises:
            StorageError, UnknownOutcomeError: no id could be allocated and recorded. An id that was
                allocated meanwhile stays unused.
        """
        if last is not None and self.state.is_new(last):
            return last
        producer_id = self._cluster.producer_ids.next_id()
        while not self.state.is_new(producer_id):  # an id above it was used up
            producer_id = self._cluster.producer_ids.next_id()
        record_producer(self._cluster.store, producer_id, self.transactional_id)
        return producer_id


def batch_timeout_ms(config: ClusterConfig, given_ms: int | None) -> int:
    """Return the timeout of a transaction that covers a batch of Spark or of a job.

    Args:
        config: the cluster's configuration; ``transaction.max.timeout.ms`` limits the default.
        given_ms: the user's ``transaction.timeout.ms``, which the coordinator checks when the
            transaction begins; None for the default, 15 minutes.
    """
    return given_ms or min(_BATCH_TIMEOUT_MS, config.transaction_max_timeout_ms)


class _NoProducerIdError(Exception):
    """A participant needs a new producer id: another participant has taken the free one."""
