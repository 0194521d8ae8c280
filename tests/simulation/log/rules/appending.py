"""Appenders without one of the safety rules of the log."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from spark_log.errors import (
    InvalidProducerEpochError,
    NotFoundError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.append.unsettled_puts import UnsettledPuts
from spark_log.log.directory.log_end import LogEnd
from spark_log.log.segment.appended_segment import AppendedSegment
from spark_log.log.segment.staged_segment import StagedSegment
from tests.simulation.log.rules.variant import Variant, appending, knowing, plain_name


class _NeverLate(AppenderState):
    @property
    def is_recent(self) -> bool:
        return self.end is not None


class _TakesExistsForAnothers(Appender):
    @staticmethod
    def _is_same(winner: AppendedSegment, segment: StagedSegment) -> bool:
        return False


class _TakesExistsForItsOwn(Appender):
    @staticmethod
    def _is_same(winner: AppendedSegment, segment: StagedSegment) -> bool:
        return True


class _PutsAgainWithoutLooking(Appender):
    def _unsettled_puts(self) -> UnsettledPuts:
        return _FindsNothing(self._directory, self._config, self._state)


class _FindsNothing(UnsettledPuts):
    def search_log(self, segment: StagedSegment) -> int | None:
        self._state.observe(segment)
        return None


class _TakesSilenceForSuccess(Appender):
    def _put(self, segment: StagedSegment, base_offset: int) -> AppendedSegment | None:
        try:
            return super()._put(segment, base_offset)
        except UnknownOutcomeError:
            return None


class _TakesSilenceForFailure(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_end_offset: int | None = None, **options: Any
    ) -> LogAppendInfo:
        try:
            return super().append_segment(segment, expected_end_offset, **options)
        except UnknownOutcomeError as error:
            raise StorageError("nothing was appended") from error


class _MovesOn(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_end_offset: int | None = None, **options: Any
    ) -> LogAppendInfo:
        if expected_end_offset is not None:
            self._state.observe(segment)
            if self._state.log_end_offset == expected_end_offset:
                expected_end_offset = None
        return super().append_segment(segment, expected_end_offset, **options)


class _IgnoresWinners(AppenderState):
    def _replay(self, winner: AppendedSegment, end: LogEnd) -> None:
        if self._producers is not None:
            self._producers.offset = winner.end_offset


class _CatchesUpBlindly(AppenderState):
    """Continues behind the last listed segment, without reading the segments before it."""

    def catch_up(self, segment: StagedSegment) -> None:
        directory, end = self._directory, self.known_end()
        listed = directory.store.list(directory.path, start_after=f"{end.log_end_offset:020d}")
        plain = [name for file in listed if (name := plain_name(file))]
        try:
            winner = directory.open(plain[-1]) if plain else None
        except NotFoundError:
            return self.observe(segment)
        if winner is None or not self._may_go_past():
            return self.observe(segment)
        if self._producers is not None:
            self._producers.offset = winner.end_offset
        self.end = LogEnd(winner.end_offset, end.observed_ms)
        return None

    def _may_go_past(self) -> bool:
        return self.is_recent


class _CatchesUpLate(_CatchesUpBlindly):
    """Does so without any producer state, however old its view of the log is."""

    def catch_up(self, segment: StagedSegment) -> None:
        self._producers = None
        super().catch_up(segment)

    def _may_go_past(self) -> bool:
        return True


class _ForgetsRepeats(AppenderState):
    def duplicate_offset(self, segment: StagedSegment) -> int | None:
        return None


class _DoesNotFence(AppenderState):
    def _check_producer(self, segment: StagedSegment) -> None:
        with suppress(InvalidProducerEpochError):
            super()._check_producer(segment)


class _AsksTheProducerStateAlone(AppenderState):
    """Takes a lost append of an older epoch for refused."""

    def is_fenced(self, segment: StagedSegment) -> bool:
        return False


class _DoesNotMindGaps(AppenderState):
    def _check_producer(self, segment: StagedSegment) -> None:
        with suppress(OutOfOrderSequenceError):
            super()._check_producer(segment)


class _ExpiresByItsOwnClock(AppenderState):
    """Accepts any sequence number of a producer that has expired by its own wall clock."""

    def _check_producer(self, segment: StagedSegment) -> None:
        self._storage_us = self._clock.time_us()
        super()._check_producer(segment)


APPENDING_RULES: dict[str, Variant] = {
    "a late success is looked up": knowing(_NeverLate),
    "a name that is taken may be one's own": appending(_TakesExistsForAnothers),
    "a name that is taken may be another's": appending(_TakesExistsForItsOwn),
    "look before putting again": appending(_PutsAgainWithoutLooking),
    "a lost answer is not success": appending(_TakesSilenceForSuccess),
    "a lost answer is not failure": appending(_TakesSilenceForFailure),
    "a conditional append never moves on": appending(_MovesOn),
    "state before put": knowing(_IgnoresWinners),
    "state before put, also of segments passed at once": knowing(_CatchesUpBlindly),
    "segments are passed at once only after a recent listing": knowing(_CatchesUpLate),
    "a repeat is answered": knowing(_ForgetsRepeats),
    "an older epoch is fenced": knowing(_DoesNotFence),
    "a fenced producer looks up its lost append": knowing(_AsksTheProducerStateAlone),
    "a gap in the sequence is refused": knowing(_DoesNotMindGaps),
    "an appender forgets producers by the storage's time": knowing(_ExpiresByItsOwnClock),
}
"""The name of each safety rule of appends, and the variant without it."""
