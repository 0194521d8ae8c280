"""`Admin` methods for transactions: lists, describes, aborts them; fences producers (KIP-664)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from spark_log import coordinator as groups
from spark_log import transaction as txn
from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
)
from spark_log.log import OpenTransaction
from spark_log.metadata import MetadataImage
from spark_log.record import ProducerIdAndEpoch
from spark_log.storage import map_requests
from spark_log.types import (
    AbortTransactionSpec,
    HangingTransaction,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)


class TransactionOperations(ClusterAccess):
    """Lists, describes and ends transactions."""

    @limited
    def list_transactions(
        self,
        *,
        state_filters: Collection[str] | None = None,
        producer_id_filters: Collection[int] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids that have not expired, sorted.

        Args:
            state_filters: the allowed states of the newest transaction, such as ``Ongoing``; None
                for all.
            producer_id_filters: the allowed ids of the producer that decides; None for all.
            duration_filter_ms: the duration that the transaction must exceed, counted from its
                start by the clock of the process that began it; None for all.
            transactional_id_pattern: a regular expression that must match the whole transactional
                id; None for all.

        Raises:
            InvalidConfigurationError: a state does not exist, or the pattern is no regular
                expression.
            CorruptRecordError: a state log is damaged.
            StorageError: the storage does not answer.
        """
        states = _states(state_filters)
        pattern = _pattern(transactional_id_pattern)
        now_us = self._clock.time_us()  # wall clock: shown to users; nothing is decided by it
        listed = []
        for state in self._states(pattern):
            owner = state.owner
            if owner is None or (states is not None and state.state not in states):
                continue
            if producer_id_filters and owner.producer_id not in producer_id_filters:
                continue
            start_us = _start_us(state)
            if duration_filter_ms is not None and (
                start_us < 0 or (now_us - start_us) / 1000 <= duration_filter_ms
            ):
                continue
            listed.append(
                TransactionListing(state.transactional_id, owner.producer_id, str(state.state))
            )
        return listed

    @limited
    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Describe transactional ids, in the given order.

        Raises:
            TransactionalIdNotFoundError: an id was never used, or has expired.
            CorruptRecordError: a state log is damaged.
            StorageError: the storage does not answer.
        """
        cluster = self._cluster()
        ids = list(transactional_ids)
        views = map_requests(
            cluster.store,
            lambda each: txn.view_transaction(cluster.store, each, cluster.clock),
            ids,
        )
        image = cluster.image()
        return {view.state.transactional_id: _describe(view.state, image) for view in views}

    @limited
    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End an open transaction of a partition.

        An undecided transaction is aborted as a whole, in all of its partitions, and its producer
        gets `TransactionAbortableError`. A hanging transaction gets a marker in this partition that
        aborts it. A decided transaction gets the marker of the decision.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            InvalidTxnStateError: the producer has no such open transaction in the partition, or the
                transaction is committed, and has its marker now.
            StorageError: it may not be ended; call again.
        """
        cluster = self._cluster()
        log = self._log(cluster.image(), TopicPartition(*spec.topic_partition))
        present = log.transactions().open_of(spec.producer_id)
        if present is None or present.producer_epoch != spec.producer_epoch:
            raise InvalidTxnStateError(
                f"producer {spec.producer_id} has no open transaction of epoch "
                f"{spec.producer_epoch} in {spec.topic_partition}; describe_producers lists those "
                f"that are open"
            )
        commit_offsets = groups.GroupOffsets(cluster).commit
        observer = txn.TransactionObserver(cluster, commit_offsets=commit_offsets)
        end = observer.end(present, log)
        if end != "aborted":
            why = "has just begun; try again" if end is None else f"{end}; it cannot be aborted"
            raise InvalidTxnStateError(
                f"the transaction of producer {spec.producer_id}, epoch {spec.producer_epoch}, in "
                f"{spec.topic_partition}: {why}"
            )

    @limited
    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Begin a new epoch of transactional ids: their present producers are fenced.

        A transaction that is ongoing is aborted.

        Returns:
            Transactional id → the new producer id and epoch, which no producer uses.

        Raises:
            SparkLogError: some ids may not be fenced; call again.
        """
        fenced = {}
        cluster = self._cluster()
        commit_offsets = groups.GroupOffsets(cluster).commit
        for transactional_id in transactional_ids:
            coordinator = txn.TransactionCoordinator(
                cluster, transactional_id, commit_offsets=commit_offsets
            )
            timeout_ms = coordinator.refresh().timeout_ms
            fenced[transactional_id] = coordinator.initialize(timeout_ms)
        return fenced

    @limited
    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[HangingTransaction]:
        """Return the transactions that are open in partitions, and that no process will end.

        In the state log such a transaction is complete, or unknown. Kafka's tool suspects all
        transactions that are open for longer than 15 minutes; this result is certain.

        Args:
            partitions: the partitions to read; None for all.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            StorageError: the storage does not answer.
        """
        image = self._cluster().image()
        everywhere = (
            TopicPartition(topic.name, number)
            for topic in image.topics()
            for number in sorted(topic.partitions)
        )
        given = everywhere if partitions is None else partitions
        wanted = [TopicPartition(*each) for each in given]
        found = self._map_partitions(lambda tp: self._hanging(image, tp), wanted, image.topic)
        return [each for some in found for each in some]

    def _hanging(self, image: MetadataImage, tp: TopicPartition) -> list[HangingTransaction]:
        log = self._log(image, tp)
        suspects = [each for each in log.transactions().open if not self._is_ended_by_others(each)]
        if not suspects:
            return []
        # A transaction may have been completed between the two reads.
        present, entries = log.transactions(), dict(log.producers().entries())
        return [
            HangingTransaction(
                topic_partition=tp,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                start_offset=each.first_offset,
                last_timestamp=entries[each.producer_id].appended_ms,
                transactional_id=txn.find_transactional_id(self._cluster().store, each.producer_id),
            )
            for each in suspects
            if present.open_of(each.producer_id) == each and each.producer_id in entries
        ]

    def _is_ended_by_others(self, transaction: OpenTransaction) -> bool:
        """Return whether a transaction is ongoing, or decided and not complete."""
        cluster = self._cluster()
        transactional_id = txn.find_transactional_id(cluster.store, transaction.producer_id)
        if transactional_id is None:
            return False
        state = txn.view_transaction(cluster.store, transactional_id, cluster.clock).state
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        if state.participant(producer) is None:
            return not state.has_passed(producer)
        return state.state is txn.TransactionState.ONGOING or state.state.is_prepared

    def _states(self, pattern: re.Pattern[str]) -> list[txn.TransactionMetadata]:
        cluster = self._cluster()
        ids = txn.list_transactional_ids(cluster.store, cluster.clock)
        views = map_requests(
            cluster.store,
            lambda each: txn.view_transaction(cluster.store, each, cluster.clock),
            [each for each in ids if pattern.fullmatch(each)],
        )
        return [view.state for view in views]


def _describe(state: txn.TransactionMetadata, image: MetadataImage) -> TransactionDescription:
    if state.owner is None:
        raise TransactionalIdNotFoundError(
            f"there is no transactional id {state.transactional_id!r}, or it has expired; "
            f"list_transactions lists those that exist",
            transactional_id=state.transactional_id,
        )
    start_us = _start_us(state)
    return TransactionDescription(
        state=str(state.state),
        producer_id=state.owner.producer_id,
        producer_epoch=state.owner.producer_epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=-1 if start_us < 0 else start_us // 1000,
        topic_partitions=frozenset(
            TopicPartition(topic.name, each.partition)
            for each in _partitions(state)
            if (topic := image.find_by_id(each.topic_id)) is not None
        ),
        participants=tuple(sorted(state.participants)),
        groups=tuple(sorted(set().union(*(each.groups for each in state.participants.values())))),
        batch_id=state.batch_id,
    )


def _partitions(state: txn.TransactionMetadata) -> set[txn.TopicIdPartition]:
    """Return the partitions of a transaction that is not complete."""
    is_open = state.state is txn.TransactionState.ONGOING or state.state.is_prepared
    participants = state.participants.values() if is_open else ()
    return {partition for each in participants for partition in each.partitions}


def _start_us(state: txn.TransactionMetadata) -> int:
    is_open = state.state is txn.TransactionState.ONGOING or state.state.is_prepared
    return state.start_time_us if is_open else -1


def _states(filters: Collection[str] | None) -> set[txn.TransactionState] | None:
    if filters is None:
        return None
    known = {state.lower(): state for state in txn.TransactionState}
    unknown = [each for each in filters if each.lower() not in known]
    if unknown:
        raise InvalidConfigurationError(
            f"{unknown[0]!r} is no state of a transaction; expected one of "
            f"{', '.join(txn.TransactionState)}"
        )
    return {known[each.lower()] for each in filters}


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(".*" if text is None else text, re.DOTALL)
    except re.error as error:
        raise InvalidConfigurationError(f"{text!r} is no regular expression: {error}") from None
