"""Variants of changes of stripes without one of their safety rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_log.cluster import stripes_change
from spark_log.errors import SparkLogError
from spark_log.log.producers import ProducerState, TransactionIndex
from spark_log.log.stripe import begin_stripe, take_home
from spark_log.log.stripe.appender import StripeAppender
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry
from spark_log.log.stripe.state import StripeState
from spark_log.log.stripe.tail import StripeTail
from spark_log.metadata import partition_states
from spark_log.metadata.topics import stripe_changes
from spark_log.record import EntryDirectory
from tests.simulation.patches import Patch, PatchVariant


def _without(*patches: Patch) -> PatchVariant:
    return PatchVariant(patches)


def _state_of(directory: StripeDirectory) -> StripeState:
    tail = StripeTail(directory)
    tail.refresh()
    return tail.state


def _end_nothing(directory: StripeDirectory, open_partition: Any, _: object) -> StripeState:
    """Take a stripe home as it is, and put no barrier."""
    while take_home(directory, open_partition) is not None:
        pass
    return _state_of(directory)


def _end_away(directory: StripeDirectory, _: object, barriers: Mapping[int, Any]) -> StripeState:
    """End a stripe, and leave its records there."""
    entries = [StripeEntry(partition, each) for partition, each in sorted(barriers.items())]
    for result in StripeAppender(directory).append(entries):
        if isinstance(result, SparkLogError):
            raise result
    return _state_of(directory)


def _begin_without(what: str) -> Any:
    def begin(
        directory: StripeDirectory,
        partitions: Mapping[int, ProducerState],
        leader_epochs: Mapping[int, int],
    ) -> None:
        kept = {}
        for partition, producers in partitions.items():
            entries = () if what == "producers" else tuple(producers.entries())
            opened = () if what == "transactions" else producers.transactions.open
            index = TransactionIndex(producers.offset, open_transactions=opened)
            kept[partition] = ProducerState(producers.offset, entries, index)
        begin_stripe(directory, kept, {} if what == "epochs" else leader_epochs)

    return begin


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _nothing(*_: object) -> None:
    pass


def _decide_as_ever(self: StripeAppender, entry: StripeEntry) -> int | SparkLogError | None:
    return self._tail.state.decide(
        entry,
        now_us=self._tail.storage_us,
        expiration_ms=self._directory.config.producer_id_expiration_ms,
        where=self._directory.path,
    )


STRIPE_CHANGES_RULES: dict[str, PatchVariant] = {
    "a stripe that has ended takes nothing": _without(
        (EntryDirectory, "is_last", property(_never))
    ),
    "a barrier ends the old place": _without((stripes_change, "end_stripe", _end_nothing)),
    "a stripe is at home before its partitions go on elsewhere": _without(
        (stripes_change, "end_stripe", _end_away)
    ),
    "a new stripe has the producers": _without(
        (stripes_change, "begin_stripe", _begin_without("producers"))
    ),
    "a new stripe has the open transactions": _without(
        (stripes_change, "begin_stripe", _begin_without("transactions"))
    ),
    "a new stripe has the leader epochs": _without(
        (stripes_change, "begin_stripe", _begin_without("epochs"))
    ),
    "only the change is completed whose barriers were put": _without(
        (stripe_changes, "is_same_change", _always), (stripes_change, "is_same_change", _always)
    ),
    "a log is opened again when the stripes have changed": _without(
        (partition_states, "check_same_stripes", _nothing)
    ),
    "an ended stripe refuses for good only what it fences": _without(
        (StripeAppender, "decision", _decide_as_ever)
    ),
}
"""The name of each safety rule, and the variant without it."""
