"""A group's log: changes by conditional appends, and a bounded number of files.

On storage: ``__consumer_groups/<group>/`` is the directory of a partition log (DESIGN.md, 5) whose
records each hold the whole group. So only the newest segment is ever needed: from time to time its
writer moves the log's start there, and frees what `spent_segments` says is needless.
A crash at any point leaves a log that reads the same.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa

from spark_log.clock import Clock
from spark_log.config import TopicConfig
from spark_log.coordinator.group import Group
from spark_log.coordinator.group_names import file_name
from spark_log.coordinator.group_records import GroupRecord, from_json
from spark_log.errors import (
    LogEndOffsetMismatchError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import PartitionLog
from spark_log.log.file_names import StartMarker, parse_snapshot_name
from spark_log.log.log_start import move_log_start
from spark_log.log.spent_segments import spent_segments
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage import Store

GROUPS_DIRECTORY = "__consumer_groups"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
"""The id that all groups' logs have; it is no topic's."""

_MAX_UNKNOWN = 5
"""Appends of one change whose outcome is unknown before it is called so."""

Decide = Callable[[Group], GroupRecord | None]

_log = logging.getLogger(__name__)


class GroupLog:
    """Reads and changes one group. For one thread at a time.

    Attributes:
        group: the state after the last replay.
    """

    log_class: ClassVar[type[PartitionLog]] = PartitionLog
    trim_every: ClassVar[int] = 64
    """Records after which the log's start is moved: so a listing shows the files of so many, and of
    the last ``file.delete.delay.ms``."""

    def __init__(
        self, store: Store, group_id: str, clock: Clock, config: TopicConfig | None = None
    ) -> None:
        """Open a group's log; touches nothing.

        Args:
            store: of the cluster root.
            group_id: any text.
            clock: dates records.
            config: of the log.
        """
        self.directory = group_directory(group_id)
        self.group = Group(group_id)
        self._clock = clock
        self._log = self.log_class(
            store,
            self.directory,
            topic_id=TOPIC_ID,
            partition=0,
            config=config or TopicConfig(merge_tail_segments=0),  # its start moves on instead
            clock=clock,
        )
        self._offset: int | None = None
        self._gaps = 0

    def replay(self) -> list[GroupRecord]:
        """Bring `group` up to the log's present end: where nothing is new, one look for a name.

        Returns:
            What was replayed: the first time at most the newest record, then each one, unless
            others moved the log's start past some of them.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: it cannot be read.
        """
        replayed: list[GroupRecord] = []
        while True:
            offset = self._newest_offset() if self._offset is None else self._offset
            try:
                batches, self._offset = self._log.fetch_from(offset)
            except OffsetOutOfRangeError as error:
                if offset > error.log_end_offset:
                    raise StorageError(
                        f"{self.directory}: the log ends at {error.log_end_offset}, before "
                        f"{offset} that was read already: its files are gone",
                        path=self.directory,
                    ) from error
                self._offset = None
                self._gaps += 1
                continue
            if not batches:
                return replayed
            for batch in batches:
                for value in batch.records.column("value").to_pylist():
                    record = from_json(value)
                    self.group = self.group.replay(record)
                    replayed.append(record)

    def commit(self, decide: Decide) -> Group:
        """Append what ``decide`` answers, at the end of exactly the log that it was shown.

        Args:
            decide: called with the current state, again and again until its record is appended; it
                changes nothing, and raises to refuse. None: nothing is appended.

        Returns:
            The group with the change, and perhaps with others that followed.

        Raises:
            UnknownOutcomeError: whether the change was made could not be found out.
        """
        tried: set[str] = set()
        unknown: UnknownOutcomeError | None = None
        while True:
            change_id = os.urandom(9).hex()
            try:
                if self._replay_for(tried):
                    return self.group
                record = decide(self.group)
                if record is None:
                    return self.group
                if len(tried) >= _MAX_UNKNOWN:
                    break
                self._append(record.model_copy(update={"change_id": change_id}))
            except LogEndOffsetMismatchError:
                continue
            except UnknownOutcomeError as error:
                # It may stand there, or come to stand there: the next look has to look for it.
                unknown = error
                tried.add(change_id)
            except StorageError as error:
                if unknown is None:
                    raise
                raise unknown from error
            else:
                self._trim_if_due()
                return self.group
        assert unknown is not None
        raise unknown

    def _replay_for(self, change_ids: set[str]) -> bool:
        """Replay, and return whether one of these changes was made.

        Raises:
            StorageError: it cannot be seen: where it would stand was deleted meanwhile, or the
                storage does not answer.
        """
        gaps = self._gaps
        replayed = self.replay()
        if change_ids and self._gaps != gaps:
            raise StorageError(
                f"{self.directory}: a change's place in the log was deleted before it could be "
                f"looked at; look whether the group has it",
                path=self.directory,
            )
        return any(record.change_id in change_ids for record in replayed)

    def _append(self, record: GroupRecord) -> None:
        after = self.group.replay(record)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([record.group_id.encode("utf-8", "surrogatepass")], pa.binary()),
                pa.array([record.to_json()], pa.binary()),
                pa.nulls(1, HEADERS_TYPE),
                pa.array([self._clock.time_us()], TIMESTAMP_TYPE),
            ],
            schema=RECORD_SCHEMA,
        )
        self._log.append(batch, compression="zstd", expected_leo=self._offset)
        assert self._offset is not None
        self.group, self._offset = after, self._offset + 1

    def _newest_offset(self) -> int:
        view = self._log.observe()
        return view.live.segments[-1].start_offset if view.live.segments else view.log_end_offset

    def _trim_if_due(self) -> None:
        if self.group.generation % self.trim_every == 0:
            try:
                self.trim()
            except SparkLogError as error:
                _log.warning("%s: not trimmed, the next one may: %s", self.directory, error)

    def trim(self) -> None:
        """Let the log begin at its newest record, and free what has been needless for long enough.

        Raises:
            StorageError: some of it was not done; harmless.
        """
        move_log_start(self._log, self._newest_offset())
        store = self._log.files.store
        files = list(store.list(self.directory))
        before_us = self._clock.time_us() - self._log.config.file_delete_delay_ms * 1000
        present = {file.name for file in files}
        names: list[str] = []
        for segment in spent_segments(files, before_us):
            names += [segment.log, segment.index, segment.time_index]
        markers = [(file, marker) for file in files if (marker := StartMarker.parse(file.name))]
        old = [marker for file, marker in markers if file.modified_us <= before_us]
        highest = max((marker.log_start_offset for marker in old), default=0)
        names += [marker.name for _, marker in markers if marker.log_start_offset < highest]
        snapshots = [file.name for file in files if parse_snapshot_name(file.name) is not None]
        names += snapshots[:-2]
        for name in names:
            if name in present:
                store.delete(f"{self.directory}/{name}")


def group_directory(group_id: str) -> str:
    """Return where a group's log lies, relative to the root."""
    return f"{GROUPS_DIRECTORY}/{file_name(group_id)}"
