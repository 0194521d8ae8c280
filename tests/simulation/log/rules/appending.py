"""Appenders without one of the safety rules of the log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from spark_log.errors import (
    InvalidProducerEpochError,
    NotFoundError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo, SegmentReader
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.directory.log_tail import LogTail, PutResult
from spark_log.log.segment.staged_segment import StagedSegment
from tests.simulation.log.rules.variant import Variant, appending, knowing, plain_name


class _NeverLate(AppenderState):
    def is_recent(self, tail: LogTail) -> bool:
        return True


class _TakesExistsForAnothers(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        put = super()._try_put(segment, base_offset)
        return put and replace(put, is_ours=put.winner is None)


class _TakesExistsForItsOwn(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        put = super()._try_put(segment, base_offset)
        return put and replace(put, is_ours=True)


class _PutsAgainWithoutLooking(Appender):
    def _find_lost(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, LogTail]:
        return None, self._state.observe(segment)


class _TakesSilenceForSuccess(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        try:
            return super()._try_put(segment, base_offset)
        except UnknownOutcomeError:
            return PutResult(True, base_offset + segment.record_count, None)


class _TakesSilenceForFailure(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_leo: int | None = None, **options: Any
    ) -> LogAppendInfo:
        try:
            return super().append_segment(segment, expected_leo, **options)
        except UnknownOutcomeError as error:
            raise StorageError("nothing was appended") from error


class _MovesOn(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_leo: int | None = None, **options: Any
    ) -> LogAppendInfo:
        if expected_leo is not None and self._state.observe(segment).log_end_offset == expected_leo:
            expected_leo = None
        return super().append_segment(segment, expected_leo, **options)


class _IgnoresWinners(AppenderState):
    def _on_winner(self, winner: SegmentReader, tail: LogTail) -> None:
        if self._producers is not None:
            self._producers.offset = winner.end_offset


class _CatchesUpBlindly(AppenderState):
    """Continues behind the last listed segment, without reading the segments before it."""

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        directory = self._directory
        listed = directory.store.list(directory.path, start_after=f"{tail.log_end_offset:020d}")
        plain = [name for file in listed if (name := plain_name(file))]
        try:
            winner = directory.open(plain[-1]) if plain else None
        except NotFoundError:
            return self.observe(segment)
        if winner is None or not self._may_go_past(tail):
            return self.observe(segment)
        if self._producers is not None:
            self._producers.offset = winner.end_offset
        self.tail = LogTail(winner.end_offset, tail.observed_ms)
        return self.tail

    def _may_go_past(self, tail: LogTail) -> bool:
        return self.is_recent(tail)


class _CatchesUpLate(_CatchesUpBlindly):
    """Does so without any producer state, however old its view of the log is."""

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        self._producers = None
        return super()._catch_up(segment, tail)

    def _may_go_past(self, tail: LogTail) -> bool:
        return True


class _ForgetsRepeats(AppenderState):
    def duplicate_offset(self, segment: StagedSegment) -> int | None:
        return None


class _DoesNotFence(AppenderState):
    def check_producer(self, segment: StagedSegment) -> None:
        with suppress(InvalidProducerEpochError):
            super().check_producer(segment)


class _AsksTheProducerStateAlone(AppenderState):
    """Takes a lost append of an older epoch for refused."""

    def is_fenced(self, segment: StagedSegment) -> bool:
        return False


class _DoesNotMindGaps(AppenderState):
    def check_producer(self, segment: StagedSegment) -> None:
        with suppress(OutOfOrderSequenceError):
            super().check_producer(segment)


class _ExpiresByItsOwnClock(AppenderState):
    """Accepts any sequence number of a producer that has expired by its own wall clock."""

    def check_producer(self, segment: StagedSegment) -> None:
        self._storage_us = self._clock.time_us()
        super().check_producer(segment)


APPENDING_RULES: dict[str, Variant] = {
    "a late success is looked at": knowing(_NeverLate),
    "a name that is taken may be one's own": appending(_TakesExistsForAnothers),
    "a name that is taken may be another's": appending(_TakesExistsForItsOwn),
    "look before putting again": appending(_PutsAgainWithoutLooking),
    "a lost answer is not success": appending(_TakesSilenceForSuccess),
    "a lost answer is not failure": appending(_TakesSilenceForFailure),
    "a conditional append never moves on": appending(_MovesOn),
    "state before put": knowing(_IgnoresWinners),
    "state before put, also of what was passed at once": knowing(_CatchesUpBlindly),
    "what was passed at once was looked at lately": knowing(_CatchesUpLate),
    "a repeat is answered": knowing(_ForgetsRepeats),
    "an older epoch is fenced": knowing(_DoesNotFence),
    "who was fenced looks at the place of a lost append": knowing(_AsksTheProducerStateAlone),
    "a gap in the sequence is refused": knowing(_DoesNotMindGaps),
    "an appender forgets producers by the storage's time": knowing(_ExpiresByItsOwnClock),
}
"""The name of each safety rule of appends, and the variant without it."""
