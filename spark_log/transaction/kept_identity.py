"""Transactions of clients that keep their identity after the end of a transaction.

Kafka's clients before ``EndTxn`` version 5 (``transaction.version`` 1) use the producer id and
epoch of their ``InitProducerId`` for all transactions. Here every decision raises the epoch. The
state has the client's identity, and the coordinator translates it to the present one (protocol
T18).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import decisions
from spark_log.transaction.coordinator import TransactionCoordinator
from spark_log.transaction.records import TransactionRecord
from spark_log.transaction.state import LAST_EPOCH, TopicIdPartition, TransactionMetadata

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PresentProducer:
    """The identity under which a client's batches are appended in its present transaction.

    Attributes:
        producer: the producer id and epoch in the log.
        continues: the identities under which the client's sequence numbers have counted so far
            (`ProducerAppend.continues`).
    """

    producer: ProducerIdAndEpoch
    continues: tuple[ProducerIdAndEpoch, ...] = ()


class KeptIdentityCoordinator(TransactionCoordinator):
    """A coordinator that also serves clients which keep their identity. For one thread at a time.

    Its methods take the identity that the client was given. Requests of such a client for two
    transactions look the same.
    """

    def register_kept(
        self,
        client: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition] = (),
        groups: Collection[str] = (),
        check: Callable[[], None] | None = None,
    ) -> int:
        """Register partitions and groups, as `register` does; begin a transaction if none is.

        Returns:
            The number of the transaction.

        Raises:
            ProducerFencedError: another owner has begun, or others have aborted the transaction.
            TransactionAbortableError: others have aborted the client's first transaction.
            UnknownOutcomeError: they may be registered; call again.
            StorageError: they are not registered, or an earlier transaction could not be completed.
        """
        owner = self.state.present(client)
        if owner.producer_epoch > LAST_EPOCH and owner == self.state.owner:
            self.renew_owner(owner)  # which failed when the last transaction ended
        self._change(
            lambda state: decisions.register(state, state.present(client), partitions, groups),
            check,
        )
        return self.state.transaction

    def verify_kept(
        self,
        client: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition] = (),
        groups: Collection[str] = (),
        *,
        is_recent: bool = False,
    ) -> PresentProducer:
        """Return the client's present identity, if all of these are registered.

        Args:
            client: the identity that the client was given.
            partitions: the partitions.
            groups: the consumer groups.
            is_recent: whether the state is read in any case. If not, and everything is registered
                in the known state, this makes no request. The transaction may then be over: the
                log refuses the epoch where it has the transaction's marker, and the caller asks
                again.

        Raises:
            ProducerFencedError: another owner has begun, or others have aborted the transaction.
            InvalidTxnStateError: a partition or group is not registered in an ongoing transaction.
            StorageError: the state log cannot be read.
        """
        state = self.state
        participant = state.participant(state.present(client)) if state.is_ongoing else None
        is_known = (
            participant is not None
            and participant.partitions.issuperset(partitions)
            and participant.groups.issuperset(groups)
        )
        if is_recent or not is_known:
            state = self.refresh()
        return PresentProducer(
            decisions.verify(state, client, partitions, groups), state.client_identities
        )

    def end_kept(
        self,
        client: ProducerIdAndEpoch,
        *,
        is_committed: bool,
        known: int | None,
        never_aborts_commits: bool = False,
        check: Callable[[], None] | None = None,
    ) -> int | None:
        """Decide as `commit` and `abort` do; the client keeps its identity.

        Args:
            client: the identity that the client was given.
            is_committed: whether to commit.
            known: the number of the transaction that earlier requests of the client's connection
                belong to; None without one. No other ongoing transaction is decided: a request that
                was late would decide the client's next transaction (protocol T19).
            never_aborts_commits: whether the client aborts no transaction whose commit it has asked
                for; see `decisions.end_kept`.
            check: called with each decision; raises a `SparkLogError` to change nothing.

        Returns:
            None if it is decided; the number of the ongoing transaction if that is not known.

        Raises:
            ProducerFencedError: another owner has begun, or others have aborted the transaction.
            InvalidTxnStateError: no transaction has begun, or the other was decided.
            UnknownOutcomeError: it may be decided; call again.
            StorageError: it is not decided; call again.
        """
        began_ms = self._clock.monotonic_ms()

        def decide(state: TransactionMetadata) -> TransactionRecord | None:
            if state.is_ongoing and state.transaction != known:
                raise _UnknownTransactionError
            return decisions.end_kept(
                state,
                client,
                is_committed=is_committed,
                never_aborts_commits=never_aborts_commits,
            )

        try:
            self._change(decide, check)
        except _UnknownTransactionError:
            _log.debug(
                "transactional id %r: transaction %d is ongoing, and the end of %s is asked for",
                self.transactional_id,
                self.state.transaction,
                known,
            )
            return self.state.transaction
        if self.state.decision is not None:
            self._after_decision(self.state.decision.owner, began_ms)
        return None


class _UnknownTransactionError(Exception):
    """The ongoing transaction is not the one that was known."""
