"""Variants of transactions of clients that keep their identity, without one of the rules."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from spark_log.errors import OutOfOrderSequenceError
from spark_log.log.producers.producer_entry import ProducerEntry
from spark_log.log.producers.producer_state import ProducerState
from spark_log.record import BatchHeader, ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import KeptIdentityCoordinator, TransactionMetadata, decisions
from spark_log.transaction.records import ProducerPart, TransactionRecord
from tests.simulation.patches import PatchVariant

_shipped_find = ProducerState.find
_shipped_check = ProducerState.check
_shipped_in_epoch = ProducerEntry.in_epoch
_shipped_initialize = decisions.initialize
_shipped_expire = decisions.expire
_shipped_end = KeptIdentityCoordinator.end_kept
_shipped_decision = decisions.end_kept


def _finds_in_its_epoch(self: ProducerState, append: ProducerAppend, record_count: int) -> Any:
    return _shipped_find(self, replace(append, continues=()), record_count)


def _takes_any_first_sequence(self: ProducerState, append: ProducerAppend, **how: Any) -> None:
    entry = dict(self.entries()).get(append.producer_id)
    is_first = entry is None or entry.epoch != append.producer_epoch or not entry.runs
    if not (append.continues and is_first):
        _shipped_check(self, append, **how)
        return
    with suppress(OutOfOrderSequenceError):
        _shipped_check(self, append, **how)


def _forgets_earlier_runs(
    self: ProducerEntry, header: BatchHeader, appended_us: int
) -> ProducerEntry:
    return replace(_shipped_in_epoch(self, header, appended_us), earlier_runs=())


def _keeps_the_clients_identity(
    record: TransactionRecord | None, state: TransactionMetadata
) -> TransactionRecord | None:
    kept = tuple(
        ProducerPart(producer_id=each.producer_id, producer_epoch=each.producer_epoch)
        for each in state.client_identities
    )
    return None if record is None else record.model_copy(update={"client_identities": kept})


def _initializes_beside_a_client(
    state: TransactionMetadata, *what: Any, **which: Any
) -> TransactionRecord | None:
    return _keeps_the_clients_identity(_shipped_initialize(state, *what, **which), state)


def _expires_in_silence(state: TransactionMetadata, transaction: int) -> TransactionRecord | None:
    return _keeps_the_clients_identity(_shipped_expire(state, transaction), state)


def _ends_what_is_ongoing(
    self: KeptIdentityCoordinator,
    client: ProducerIdAndEpoch,
    *,
    is_committed: bool,
    known: int | None,
    never_aborts_commits: bool = False,
) -> int | None:
    present = self.refresh().transaction
    return _shipped_end(
        self,
        client,
        is_committed=is_committed,
        known=present,
        never_aborts_commits=never_aborts_commits,
    )


def _ends_as_it_was_decided(
    state: TransactionMetadata,
    client: ProducerIdAndEpoch,
    *,
    is_committed: bool,
    never_aborts_commits: bool,
) -> TransactionRecord | None:
    return _shipped_decision(state, client, is_committed=is_committed)


KEPT_IDENTITY_RULES: dict[str, PatchVariant] = {
    "a sequence goes on across transactions": PatchVariant(
        (
            (ProducerState, "find", _finds_in_its_epoch),
            (ProducerState, "check", _takes_any_first_sequence),
        )
    ),
    "a partition remembers the runs of earlier epochs": PatchVariant(
        ((ProducerEntry, "in_epoch", _forgets_earlier_runs),)
    ),
    "a new owner ends the identity of the client before it": PatchVariant(
        ((decisions, "initialize", _initializes_beside_a_client),)
    ),
    "an abort by others ends the client's identity": PatchVariant(
        ((decisions, "expire", _expires_in_silence),)
    ),
    "a late end decides no later transaction": PatchVariant(
        ((KeptIdentityCoordinator, "end_kept", _ends_what_is_ongoing),)
    ),
    "an abort after a commit is that of a transaction that has not begun": PatchVariant(
        ((decisions, "end_kept", _ends_as_it_was_decided),)
    ),
}
"""The name of each safety rule, and the variant without it."""
