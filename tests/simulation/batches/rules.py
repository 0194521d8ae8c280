"""Variants of the append of several producers' batches without one of its safety rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from spark_log.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend, LogAppendInfo, StagedSegment, partition_log
from spark_log.log.append import AppendedBatches, appender
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.chain.replica_chain import ReplicaChain
from spark_log.log.chain.replicated_appender import ReplicatedAppender
from spark_log.record import ProducerAppend
from tests.simulation.log.rules.appending import APPENDING_RULES
from tests.simulation.log.rules.variant import Variant, appending, knowing
from tests.simulation.patches import PatchVariant
from tests.simulation.replication.rules import REPLICATION_RULES


class _PutsRepeats(AppenderState):
    def _decisions(self, segment: StagedSegment) -> dict[int, int | SparkLogError]:
        decisions = super()._decisions(segment)
        return {index: each for index, each in decisions.items() if not isinstance(each, int)}


class _AnswersRepeatsAtTheEnd(Appender):
    def _on_decided(
        self,
        batches: Sequence[BatchAppend],
        chosen: Sequence[int],
        decisions: Mapping[int, int | SparkLogError],
        results: list[LogAppendInfo | SparkLogError | None],
    ) -> None:
        end_offset = self._state.log_end_offset
        moved = {
            number: end_offset if isinstance(each, int) else each
            for number, each in decisions.items()
        }
        super()._on_decided(batches, chosen, moved, results)


class _DoesNotFence(AppenderState):
    def _check_append(self, producer: ProducerAppend) -> None:
        with suppress(InvalidProducerEpochError):
            super()._check_append(producer)


class _DoesNotMindGaps(AppenderState):
    def _check_append(self, producer: ProducerAppend) -> None:
        with suppress(OutOfOrderSequenceError):
            super()._check_append(producer)


class _DecidesOnce(AppenderState):
    """Checks a segment before its first put, and not again after a lost race."""

    _passed = ""

    def _check_batches(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        if segment.append_id != self._passed:
            super()._check_batches(segment, is_epoch_certain=is_epoch_certain)
            self._passed = segment.append_id


class _DecidesOnlyTheFirstBatch(AppenderState):
    """Takes a segment for one of a single producer."""

    def _decisions(self, segment: StagedSegment) -> dict[int, int | SparkLogError]:
        decisions = super()._decisions(segment)
        return {index: each for index, each in decisions.items() if not index}


class _AsksTheProducerStateAlone(AppenderState):
    def needs_search(self, segment: StagedSegment) -> bool:
        return False


class _DoesNotSearchForFencedBatches(AppenderState):
    def needs_search(self, segment: StagedSegment) -> bool:
        return None in segment.producers


def _all_batches(_: Sequence[BatchAppend], waiting: Iterable[int]) -> list[int]:
    return list(waiting)


class _TakesSilenceForFailure(Appender):
    def append_batches(self, *arguments: Any, **options: Any) -> AppendedBatches:
        try:
            return super().append_batches(*arguments, **options)
        except UnknownOutcomeError as error:
            raise StorageError("nothing was appended") from error


_OF_EVERY_APPEND = (
    "a late success is looked up",
    "a name that is taken may be one's own",
    "a name that is taken may be another's",
    "look before putting again",
    "a lost answer is not success",
    "state before put",
    "state before put, also of segments passed at once",
)

BATCHES_RULES: dict[str, Variant] = {
    "a batch that the log has is left out": knowing(_PutsRepeats),
    "a batch that the log has gets its first offsets": appending(_AnswersRepeatsAtTheEnd),
    "a fenced batch is left out": knowing(_DoesNotFence),
    "a batch after a gap is left out": knowing(_DoesNotMindGaps),
    "each batch is decided": knowing(_DecidesOnlyTheFirstBatch),
    "each batch is decided again after a lost race": knowing(_DecidesOnce),
    "a batch without a producer is searched for by its segment": knowing(
        _AsksTheProducerStateAlone
    ),
    "a fenced batch is searched for by its segment": knowing(_DoesNotSearchForFencedBatches),
    "one segment has only consecutive batches of a producer": Variant(
        patches=((appender, "consecutive_batches", _all_batches),)
    ),
    "a lost answer is not failure": appending(_TakesSilenceForFailure),
    **{name: APPENDING_RULES[name] for name in _OF_EVERY_APPEND},
}
"""The name of each safety rule, and the variant without it."""


class _PutsAgainWithoutSearching(ReplicatedAppender):
    def _finds_batches_again(self, *_: object) -> bool:
        return False


class _BelievesThePut(ReplicatedAppender):
    """Takes what was put into the log of an earlier leader for a part of the new leader's."""

    def _finds_batches_again(self, *_: object) -> bool:
        return True


class _PutsToAnyLeader(ReplicaChain):
    def append(self, put: Any, **options: Any) -> Any:
        return super().append(put, **{**options, "repeatable": True})


def _observes(self: AppenderState, segment: StagedSegment, **_: object) -> None:
    self.observe(segment)


_OF_EVERY_CHAIN = (
    "all in-sync replicas have each acknowledged record",
    "puts follow the order of the chain",
    "a newer epoch in the log fences a writer",
)

REPLICATED_BATCHES_RULES: dict[str, PatchVariant] = {
    "batches are searched for again in a new leader epoch": PatchVariant(
        ((partition_log, "ReplicatedAppender", _PutsAgainWithoutSearching),)
    ),
    "batches are decided again in the log of a new leader": PatchVariant(
        ((partition_log, "ReplicatedAppender", _BelievesThePut),)
    ),
    "no other leader gets a batch without a producer": PatchVariant(
        ((partition_log, "ReplicaChain", _PutsToAnyLeader),)
    ),
    "the leader epoch is checked again when the log is listed again": PatchVariant(
        ((AppenderState, "observe_in_epoch", _observes),)
    ),
    **{name: REPLICATION_RULES[name] for name in _OF_EVERY_CHAIN},
}
"""The name of each safety rule of a replicated partition, and the variant without it."""
