"""A log whose newest record holds a whole state: of a group, or of a transactional id.

On storage: a partition log in a directory of its own (docs/protocol.md). Each record holds the
whole state after one change, so that only the newest segment is needed. From time to time a writer
moves the log start to the newest record, and deletes the segments that `spent_segments` returns. A
crash at any point leaves a log with the same content.
"""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS, INTERNAL_LOG_CONFIG, TopicConfig
from spark_log.errors import (
    ClockSkewError,
    LogEndOffsetMismatchError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.files import StartMarker, parse_snapshot_name, spent_segments
from spark_log.log.local_log import LocalLog
from spark_log.log.log_start import move_log_start
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array
from spark_log.storage import (
    FileInfo,
    Store,
    check_clock_skew,
    newest_modified_us,
    storage_time_us,
)
from spark_log.util import Clock, VersionedRecord

_MAX_UNKNOWN = 5
"""Appends with an unknown outcome after which a change fails with `UnknownOutcomeError`."""

_TRIMS_PER_DELAY = 8
"""Maximum number of times that one process trims a log within ``file.delete.delay.ms``. Files are
deleted after that time, so a busy log has many; listing them after each 64 records took half of the
time of a transaction."""

_log = logging.getLogger(__name__)


class StateRecord(VersionedRecord):
    """A whole state after a change.

    Attributes:
        change_id: a random id. A process that lost the answer to an append finds its record by it.
    """

    stores_defaults: ClassVar[bool] = False

    change_id: str


_State = TypeVar("_State")
_Record = TypeVar("_Record", bound=StateRecord)


class StateLog(ABC, Generic[_State, _Record]):
    """Reads and changes one state. Not thread-safe.

    Attributes:
        state: the state after the last replay.
        max_clock_skew_ms: ``max.clock.skew.ms`` of the cluster.
    """

    log_class: ClassVar[type[LocalLog]] = LocalLog
    trim_every: ClassVar[int] = 64
    """Number of records after which the log is trimmed, but at most `_TRIMS_PER_DELAY` times within
    ``file.delete.delay.ms``: a trim lists the log. The listing returns the files of this many
    records, and the files of little more than the last ``file.delete.delay.ms``."""
    replays_first: ClassVar[bool] = True
    """Whether a change first reads new records. If not, the change is first tried on the known
    state: if that is the newest one, the change costs only the append."""
    if_truncated: ClassVar[str] = ""
    """Advice for the case that files of the log were removed, appended to the error's text."""

    def __init__(
        self,
        store: Store,
        directory: str,
        state: _State,
        clock: Clock,
        *,
        key: str,
        topic_id: str,
        config: TopicConfig | None = None,
    ) -> None:
        """Return the log of a state; nothing is read yet.

        Args:
            store: the store of the root.
            directory: the log's directory, relative to the root.
            state: the state before the first record.
            clock: gives records their timestamps.
            key: the key of every record.
            topic_id: the topic id in the log's segments; no topic has it.
            config: the topic config of the log; None for `INTERNAL_LOG_CONFIG`.
        """
        self.directory = directory
        self.state = state
        self._key = key
        self._clock = clock
        self._log = self.log_class(
            store,
            directory,
            topic_id=topic_id,
            partition=0,
            config=config or INTERNAL_LOG_CONFIG,
            clock=clock,
            has_existence_marker=True,
        )
        self.max_clock_skew_ms = DEFAULT_MAX_CLOCK_SKEW_MS
        self._offset: int | None = None
        self._gaps = 0
        self._skew_was_logged = False
        self._trimmed_ms = -math.inf

    @abstractmethod
    def _parse(self, value: bytes) -> _Record:
        """Return the record with this stored value.

        Raises:
            CorruptRecordError: the value is no such record, or a newer version of spark-log wrote
                it.
        """

    @abstractmethod
    def _after(self, record: _Record) -> _State:
        """Return the state after a record that follows `state`.

        Raises:
            CorruptRecordError: the record cannot follow the state.
        """

    def _give_way(self, races: int) -> None:
        """Pause after a lost race, before the change is decided again; by default, do not pause."""

    def replay(self) -> int:
        """Update `state` to the present end of the log.

        Without a new record this costs one lookup of a file name. If there are several new records,
        only the last one is parsed: it holds the whole state.

        Returns:
            The number of records read: at most one the first time, then every new record, except
            those before a log start that was moved meanwhile.

        Raises:
            CorruptRecordError: the log is damaged.
            LogTruncatedError: files of the log were removed.
            StorageError: the log cannot be read.
        """
        return len(self._read_new_records())

    def _read_new_records(self) -> list[bytes]:
        """Update `state` as `replay` does, and return the stored values of the records read."""
        found: list[bytes] = []
        while True:
            offset = self._offset
            try:
                if offset is None:
                    batches, view = self._log.read_last()
                    self._offset = view.log_end_offset
                else:
                    batches, self._offset = self._log.read_to_end(offset)
            except OffsetOutOfRangeError as error:
                if offset is not None and offset > error.log_end_offset:
                    raise StorageError(
                        f"{self.directory}: the log ends at {error.log_end_offset}, before offset "
                        f"{offset}, which was read already: files were removed",
                        path=self.directory,
                    ) from error
                self._offset = None
                self._gaps += 1
                continue
            except LogTruncatedError as error:
                raise LogTruncatedError(
                    f"{error.message}{self.if_truncated}",
                    path=self.directory,
                    log_end_offset=error.log_end_offset,
                    witnessed_offset=error.witnessed_offset,
                ) from error
            for batch in batches:
                found += batch.records.column("value").to_pylist()
            if batches:
                self.state = self._after(self._parse(found[-1]))
            return found

    def commit(
        self, decide: Callable[[_State], _Record | None], *, is_recent: bool = False
    ) -> _State:
        """Append the record that ``decide`` returns, at the log end offset of its state.

        Args:
            decide: called with the present state, and again after each append of another process
                that was first. It must have no effects; it raises to refuse the change. If it
                returns None, nothing is appended.
            is_recent: whether `state` was read just now. Then the change is first tried on it, even
                if `replays_first` is true.

        Returns:
            The state after the change, and possibly after later changes.

        Raises:
            UnknownOutcomeError: it is not known whether the change was made.
        """
        races = 0
        tried: set[str] = set()
        unknown: UnknownOutcomeError | None = None
        may_be_old = self._offset is not None and (is_recent or not self.replays_first)
        while True:
            change_id = os.urandom(9).hex()
            try:
                record = None
                if may_be_old:
                    # Only a record that is appended counts: it shows that the state was the newest.
                    may_be_old = False
                    with suppress(SparkLogError):
                        record = decide(self.state)
                if record is None:
                    if self._replay_for(tried):
                        return self.state
                    record = decide(self.state)
                if record is None:
                    return self.state
                if len(tried) >= _MAX_UNKNOWN:
                    break
                self._append(record.model_copy(update={"change_id": change_id}))
            except LogEndOffsetMismatchError:
                races += 1
                self._give_way(races)
            except UnknownOutcomeError as error:
                # The record may be in the log, now or later: the next replay looks for it.
                unknown = error
                tried.add(change_id)
            except StorageError as error:
                if unknown is None:
                    raise
                raise unknown from error
            else:
                self._trim_if_due()
                return self.state
        assert unknown is not None
        raise unknown

    def _replay_for(self, change_ids: set[str]) -> bool:
        """Replay, and return whether one of these changes is in the log.

        Raises:
            StorageError: the answer cannot be found: the records were deleted meanwhile, or the
                storage does not answer.
        """
        gaps = self._gaps
        found = self._read_new_records()
        if change_ids and self._gaps != gaps:
            raise StorageError(
                f"{self.directory}: a change's place in the log was deleted before it could be "
                f"read; check whether the change was made",
                path=self.directory,
            )
        return any(self._parse(value).change_id in change_ids for value in found if change_ids)

    def _append(self, record: _Record) -> None:
        after = self._after(record)
        batch = pa.RecordBatch.from_arrays(
            [
                binary_array([self._key.encode("utf-8", "surrogatepass")]),
                binary_array([record.to_json()]),
                pa.nulls(1, HEADERS_TYPE),
                # wall clock: shown to users; no decision depends on it
                timestamp_array(np.array([self._clock.time_us()])),
            ],
            schema=RECORD_SCHEMA,
        )
        self._log.append(batch, compression="zstd", expected_leo=self._offset)
        assert self._offset is not None
        self.state, self._offset = after, self._offset + 1

    def _newest_offset(self) -> int:
        view = self._log.observe()
        return view.live.segments[-1].start_offset if view.live.segments else view.log_end_offset

    def _trim_if_due(self) -> None:
        assert self._offset is not None
        now_ms = self._clock.monotonic_ms()
        between_ms = self._log.config.file_delete_delay_ms / _TRIMS_PER_DELAY
        if self._offset % self.trim_every == 0 and now_ms - self._trimmed_ms >= between_ms:
            self._trimmed_ms = now_ms
            try:
                self.trim()
                self._skew_was_logged = False
            except ClockSkewError as error:
                if not self._skew_was_logged:
                    _log.warning("%s: not trimmed by this process: %s", self.directory, error)
                self._skew_was_logged = True
            except SparkLogError as error:
                _log.warning("%s: not trimmed, trying again later: %s", self.directory, error)

    def trim(self) -> None:
        """Move the log start to the newest record, and delete files that were obsolete long enough.

        Ages are measured by the storage's time. It is read from the newest file, a change or the
        start marker, which was created just before.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing was deleted.
            StorageError: the start was not moved, or files were not deleted; both are harmless.
        """
        move_log_start(self._log, self._newest_offset())
        store = self._log.files.store
        files = list(store.list(self.directory))
        before_us = self._storage_time_us(files) - self._log.config.file_delete_delay_ms * 1000
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

    def _storage_time_us(self, files: Sequence[FileInfo]) -> int:
        """Return the storage's time, from the newest file in a listing.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
        """
        now_us = newest_modified_us(files)
        try:
            check_clock_skew(self._clock, now_us, self.max_clock_skew_ms)
        except ClockSkewError:  # possibly this process was paused after its append
            now_us = storage_time_us(self._log.files.store, self.directory)
            check_clock_skew(self._clock, now_us, self.max_clock_skew_ms)
        return now_us
