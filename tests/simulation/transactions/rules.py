"""Variants of transactions without one of the safety rules of docs/protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from spark_log.errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    SparkLogError,
    TransactionAbortableError,
)
from spark_log.log import LocalLog, LogAppendInfo
from spark_log.log.producers.producer_state import ProducerState
from spark_log.record import BatchHeader, EndTransactionMarker, ProducerIdAndEpoch
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCoordinator,
    TransactionMetadata,
    decisions,
)
from spark_log.transaction import coordinator as coordinator_module
from spark_log.transaction import markers as markers_module
from spark_log.transaction.records import TransactionRecord
from tests.simulation.patches import PatchVariant

# --- the state log -------------------------------------------------------------------------------

_shipped_register = TransactionCoordinator.register
_shipped_registration = decisions.register
_shipped_commit = decisions.commit
_shipped_append = LocalLog.append


def _registers_one_partition(
    self: TransactionCoordinator,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicIdPartition] = (),
    groups: Collection[str] = (),
) -> None:
    """Take a participant's first registration for all."""
    present = self.state.participants.get(producer.producer_id)
    if present is None or present.producer != producer or not present.partitions:
        _shipped_register(self, producer, partitions, groups)


def _registers_whoever_asks(
    state: TransactionMetadata, producer: ProducerIdAndEpoch, *what: Any
) -> TransactionRecord | None:
    try:
        return _shipped_registration(state, producer, *what)
    except (ProducerFencedError, TransactionAbortableError):
        return None


def _commits_a_batch_again(state: TransactionMetadata, *what: Any, **which: Any) -> Any:
    return _shipped_commit(replace(state, batch_id=-1), *what, **which)


def _appends_wherever_the_end_is(
    self: LocalLog, records: Any, *, expected_end_offset: int | None = None, **how: Any
) -> LogAppendInfo:
    return _shipped_append(self, records, **how)


def _records_nothing(*_: object) -> None:
    pass


# --- markers -------------------------------------------------------------------------------------

_shipped_put_markers = markers_module.put_markers
_shipped_markers = markers_module.transaction_markers
_shipped_replay = ProducerState.replay
_shipped_check = ProducerState.check


def _replays_markers_in_their_transactions_epoch(
    self: ProducerState, segment_base_offset: int, headers: Iterable[BatchHeader], appended_us: int
) -> None:
    headers = [
        header
        if header.marker is None
        else replace(header, producer_epoch=header.producer_epoch - 1)
        for header in headers
    ]
    _shipped_replay(self, segment_base_offset, headers, appended_us)


def _has_marker_of_the_same_epoch(self: ProducerState, marker: EndTransactionMarker) -> bool:
    entry = dict(self.entries()).get(marker.producer_id)
    is_open = entry is not None and entry.first_transaction_offset is not None
    return entry is not None and entry.epoch >= marker.producer_epoch - 1 and not is_open


def _has_none(*_: object) -> bool:
    return False


def _puts_what_can_be_put(*what: Any, **how: Any) -> None:
    with suppress(SparkLogError):
        _shipped_put_markers(*what, **how)


def _checks_no_open_transaction(self: ProducerState, *what: Any, **how: Any) -> None:
    with suppress(InvalidTxnStateError):
        _shipped_check(self, *what, **how)


def _every_participant_counts(
    state: TransactionMetadata,
) -> Mapping[TopicIdPartition, list[EndTransactionMarker]]:
    is_committed = state.is_committed
    return {
        partition: [replace(marker, is_committed=is_committed) for marker in found]
        for partition, found in _shipped_markers(state).items()
    }


TRANSACTIONS_RULES: dict[str, PatchVariant] = {
    "a partition is registered before the put there": PatchVariant(
        ((TransactionCoordinator, "register", _registers_one_partition),)
    ),
    "a registration is refused after the decision": PatchVariant(
        ((decisions, "register", _registers_whoever_asks),)
    ),
    "a marker raises the epoch": PatchVariant(
        (
            (ProducerState, "replay", _replays_markers_in_their_transactions_epoch),
            (ProducerState, "has_marker", _has_marker_of_the_same_epoch),
        )
    ),
    "the log is taken in before a marker is put": PatchVariant(
        ((ProducerState, "has_marker", _has_none),)
    ),
    "no later marker is put where an earlier one is missing": PatchVariant(
        ((coordinator_module, "put_markers", _puts_what_can_be_put),)
    ),
    "no later record is put where an earlier marker is missing": PatchVariant(
        (
            (coordinator_module, "put_markers", _puts_what_can_be_put),
            (ProducerState, "check", _checks_no_open_transaction),
        )
    ),
    "participants that do not count are aborted": PatchVariant(
        ((markers_module, "transaction_markers", _every_participant_counts),)
    ),
    "a decision is appended where it was made": PatchVariant(
        ((LocalLog, "append", _appends_wherever_the_end_is),)
    ),
    "a micro-batch is committed once": PatchVariant(
        ((decisions, "commit", _commits_a_batch_again),)
    ),
    "a producer id is recorded before it is used": PatchVariant(
        ((coordinator_module, "record_producer", _records_nothing),)
    ),
}
"""The name of each safety rule, and the variant without it."""
