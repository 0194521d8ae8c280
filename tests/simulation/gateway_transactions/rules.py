"""Variants of transactions with offsets, without one of their safety rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_log.coordinator.group.group import Group, PendingOffsets
from spark_log.coordinator.offsets.rows import PartitionKey, Row
from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets
from spark_log.gateway.transactions import Transactions
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import (
    TransactionMetadata,
    TransactionOffset,
    decisions,
)
from spark_log.transaction.records import TransactionRecord
from spark_log.types import ConsumerGroupMetadata
from tests.simulation.groups.transactions import NeverWaits
from tests.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class GatewayTransactionsVariant:
    """The classes that one simulation uses.

    Attributes:
        transactions: the transactions of each gateway.
        offsets: the offsets that transactions commit.
        patches: the other attributes that are replaced.
    """

    transactions: type[Transactions] = Transactions
    offsets: type[TransactionalOffsets] = TransactionalOffsets
    patches: tuple[Patch, ...] = ()


GATEWAY_TRANSACTIONS_SOUND = GatewayTransactionsVariant()
"""The shipped code."""


class _CommitsAtOnce(Transactions):
    """Commits offsets when they are sent, also of transactions that are aborted later."""

    def send_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        offsets: Sequence[TransactionOffset],
        check: Callable[[], None] | None = None,
    ) -> None:
        super().send_offsets(transactional_id, producer, member, offsets, check)
        _commit_now(self._cluster, member, offsets)


def _commit_now(
    cluster: Any, member: ConsumerGroupMetadata, offsets: Sequence[TransactionOffset]
) -> None:
    cluster.offsets.roll_forward(
        member.group_id,
        [
            Row(PartitionKey(each.topic, each.topic_id, each.partition), each.offset, each.metadata)
            for each in offsets
        ],
        lambda _: False,
        generation=member.generation_id,
        member_id=member.member_id,
        decided_ms=0.0,
    )


class _LosesDecidedOffsets(TransactionalOffsets):
    """Settles a committed transaction, and leaves out its offsets."""

    def commit_offsets(self, state: TransactionMetadata) -> None:
        pass


class _TakesAbortedOffsets(Transactions):
    """Commits the offsets of an aborted transaction, too."""

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_committed: bool,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        with self._coordinator(transactional_id) as coordinator:
            participants = coordinator.state.participants.values()
            sent = [each for participant in participants for each in participant.offsets]
        following = super().end(transactional_id, producer, is_committed=is_committed, check=check)
        if sent and not is_committed:
            _commit_now(self._cluster, ConsumerGroupMetadata("group", 0, "", None), sent)
        return following


def _lets_all_send(group: Group, sent: PendingOffsets, instance_id: str | None) -> str:
    """Let every producer send offsets, also for members that are none any more."""
    return ""


def _is_never_superseded(pending: PendingOffsets, generation: int, timestamp_us: int) -> bool:
    return False


_Decide = Callable[..., TransactionRecord | None]


def _of_any_epoch(decide: _Decide) -> _Decide:
    """Return a decision that takes each producer for the present one."""

    def decide_for(state: TransactionMetadata, _: ProducerIdAndEpoch, *args: Any, **settings: Any):
        assert state.owner is not None
        if "counting" in settings or (args and decide is decisions.commit):
            args = ([state.owner], *args[1:])
        return decide(state, state.owner, *args, **settings)

    return decide_for


GATEWAY_TRANSACTIONS_RULES: dict[str, GatewayTransactionsVariant] = {
    "sent offsets are committed with the decision": GatewayTransactionsVariant(_CommitsAtOnce),
    "offsets of an aborted transaction are dropped": GatewayTransactionsVariant(
        _TakesAbortedOffsets
    ),
    "a decided transaction's offsets are in the table before a member begins": (
        GatewayTransactionsVariant(offsets=_LosesDecidedOffsets)
    ),
    "a member begins after undecided transactions": GatewayTransactionsVariant(offsets=NeverWaits),
    "a member of the present generation sends offsets": GatewayTransactionsVariant(
        patches=((Group, "refusal_of", _lets_all_send),)
    ),
    "a decided transaction never sets back a later one": GatewayTransactionsVariant(
        patches=((PendingOffsets, "is_superseded_by", _is_never_superseded),)
    ),
    "a producer of an older epoch sends and decides nothing": GatewayTransactionsVariant(
        patches=tuple(
            (decisions, name, _of_any_epoch(getattr(decisions, name)))
            for name in ("register", "send_offsets", "commit")
        )
    ),
}
"""The name of each safety rule, and the variant without it."""
