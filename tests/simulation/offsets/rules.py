"""Variants of the offsets table without one of the safety rules of its log."""

from __future__ import annotations

from collections.abc import Sequence

from spark_log.coordinator.offsets import commit_queue as offset_commits
from spark_log.coordinator.offsets.commit_queue import CommitRequest
from spark_log.coordinator.offsets.commit_times import CommitTimes
from spark_log.coordinator.offsets.creation import check_not_lost, create_table, mark
from spark_log.coordinator.offsets.store import ChangedGroups, OffsetsStore
from spark_log.delta.cleanup import DeltaCleanup
from spark_log.delta.delta_log import DeltaLog, StagedVersion
from spark_log.delta.files import DataFile, DataFiles
from spark_log.delta.state import LogListing, TableState, Version
from spark_log.errors import LogEndOffsetMismatchError, UnknownOutcomeError
from spark_log.storage import OFFSETS_TABLE
from tests.simulation.offsets.world import Maintenance, OffsetsVariant

# --- names that were freed -----------------------------------------------------------------------


class _TakesMissingForTheEnd(DeltaLog):
    def _read_new_versions(self) -> list[Version] | None:
        return self._read_up_to(None)


class _TakesEveryPutForAnAppend(DeltaLog):
    def _was_certainly_unused(self, number: int) -> bool:
        return True


class _TakesTheOldestCheckpoint(DeltaLog):
    """Begins at the oldest checkpoint, and reads all versions after it, also void ones."""

    def _newest_checkpoint(
        self, listed: LogListing, last: float = float("inf")
    ) -> TableState | None:
        for version in sorted(listed.checkpoints):
            found = self._read_checkpoint(version) if version <= last else None
            if found is not None:
                return found
        return None


class _TakesSilenceForFailure(DeltaLog):
    def append_staged(self, staged: StagedVersion) -> Version:
        try:
            return super().append_staged(staged)
        except UnknownOutcomeError as error:
            raise LogEndOffsetMismatchError("commit again") from error


# --- whose clock ---------------------------------------------------------------------------------


class _GoesByItsOwnClock(Maintenance):
    def _storage_time_us(self, *, is_exact: bool) -> int:
        with self._table.lock:
            self._table.refresh()
        return self._table.clock.time_us()


class _BelievesStamps(Maintenance):
    def _commit_times(self, present: Sequence[DataFile], files: DataFiles) -> CommitTimes:
        return {}


class _ForgetsWhatChanged(Maintenance):
    def _expiry(
        self, group: str, before_us: int, times: CommitTimes, changed: ChangedGroups
    ) -> CommitRequest:
        return super()._expiry(group, before_us, times, ChangedGroups())


class _KnowsOnlyTheNewestState(DeltaLog):
    def state_at(self, version: int, listed: LogListing) -> TableState | None:
        self.refresh()
        return self.state


class _FreesWhatIsOld(DeltaCleanup):
    """Deletes old data files that are not in the table, without waiting since their removal."""

    log_class = _KnowsOnlyTheNewestState


class _FreesOldFiles(Maintenance):
    cleanup_class = _FreesWhatIsOld


# --- state of a process --------------------------------------------------------------------------


class _ReadsOnce(OffsetsStore):
    def refresh(self, *, create: bool = False) -> None:
        """Read new versions; a version whose read failed is not read again."""
        versions = self.log.refresh()
        if versions is None:
            self._forget()
        if self.state.version < 0:
            check_not_lost(self.store, OFFSETS_TABLE)
            if not create:
                return
            create_table(self.log, self.clock)
        if create and not self._is_marked:
            mark(self.store)
            self._is_marked = True
        for version in versions or ():
            self._apply(version)


def _allow_all(*_: object) -> bool:
    return True


OFFSETS_RULES: dict[str, OffsetsVariant] = {
    "a missing name is the end only where nothing was freed": OffsetsVariant(
        log=_TakesMissingForTheEnd
    ),
    "a put into a freed name is no append": OffsetsVariant(log=_TakesEveryPutForAnAppend),
    "the newest checkpoint is read": OffsetsVariant(log=_TakesTheOldestCheckpoint),
    "a lost answer is unknown": OffsetsVariant(log=_TakesSilenceForFailure),
    "nothing is decided by a process's own clock": OffsetsVariant(maintenance=_GoesByItsOwnClock),
    "stamps are held against the storage's time": OffsetsVariant(maintenance=_BelievesStamps),
    "a commit during maintenance is not forgotten": OffsetsVariant(maintenance=_ForgetsWhatChanged),
    "data files stay that were needed since": OffsetsVariant(maintenance=_FreesOldFiles),
    "a read that failed is made again": OffsetsVariant(table=_ReadsOnce),
    "a commit of an older generation is refused": OffsetsVariant(
        patches=((CommitRequest, "is_allowed", _allow_all),)
    ),
    "no version names a file that was written long ago": OffsetsVariant(
        patches=((offset_commits, "is_listing_valid", _allow_all),)
    ),
}
"""The name of each safety rule, and the variant without it."""
