"""A log whose newest record holds a whole state: of a group, or of a transactional id.

On storage: a partition log in a directory of its own (protocol A6), whose name is made from
the state's name: the group id, or the transactional id. Each record holds the whole state after one
change, so that only the newest segment is needed; its key is the state's name. Writers delete old
segments from time to time (`StateLogTrimmer`). A crash at any point leaves a log with the same
content.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from spark_log.config import INTERNAL_LOG_CONFIG, TopicConfig
from spark_log.errors import (
    LogEndOffsetMismatchError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.local_log import LocalLog
from spark_log.log.state_log_trimmer import StateLogTrimmer
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array
from spark_log.storage import Store, file_name, text_of
from spark_log.util import Clock, VersionedRecord

_MAX_UNKNOWN = 5
"""Appends with an unknown outcome after which a change fails with `UnknownOutcomeError`."""

_log = logging.getLogger(__name__)


class StateRecord(VersionedRecord):
    """A whole state after a change.

    Attributes:
        change_id: a random id. A process that lost the answer to an append finds its record by it.
    """

    stores_defaults: ClassVar[bool] = False

    change_id: str

    @property
    def headline(self) -> str:
        """The change in a few words, for log lines; ``str`` returns the state, too."""
        raise NotImplementedError


class ReplayableState(Protocol):
    """An immutable state that follows from the records of its log."""

    def replay(self, record: Any, /) -> Self:
        """Return the state after a later record; records between the two may be missing.

        Raises:
            CorruptRecordError: the record cannot follow this state.
        """


_State = TypeVar("_State", bound=ReplayableState)
_Record = TypeVar("_Record", bound=StateRecord)


@dataclass(frozen=True, slots=True)
class StateView(Generic[_State]):
    """A state after the newest record of its log.

    Attributes:
        state: the state; the initial one if the log has no record.
        changed_us: the time of the newest record by the storage's clock, in microseconds; 0 without
            a record.
    """

    state: _State
    changed_us: int = 0


class _Newest(NamedTuple):
    """The newest record of a log: the state's name, the stored value, the time of the append."""

    name: str
    value: bytes
    changed_us: int


class StateLog(ABC, Generic[_State, _Record]):
    """Reads and changes one state. Not thread-safe.

    A subclass says what a state is: it sets `parent_directory` and `topic_id`, makes the initial
    state of a name, and parses a record.

    Attributes:
        directory: the log's directory, relative to the root.
        state: the state after the last replay.
        trimmer: deletes old records and files of the log, after some of the changes.
        on_lost_race: the function that is called after another process has changed the state first,
            with the number of times that this happened to the change, before the change is decided
            again. By default it does nothing.
    """

    parent_directory: ClassVar[str]
    """The directory of all logs of this kind, relative to the root."""
    topic_id: ClassVar[str]
    """The topic id in the segments of all logs of this kind; no topic has it."""
    trim_every: ClassVar[int] = 64
    """Number of records after which the log is trimmed."""
    replays_first: ClassVar[bool] = True
    """Whether a change first reads new records. If not, the change is first tried on the known
    state: if that is the newest one, the change costs only the append."""
    if_truncated: ClassVar[str] = ""
    """Advice for the case that files of the log were removed, appended to the error's text."""

    def __init__(
        self, store: Store, name: str, clock: Clock, config: TopicConfig | None = None
    ) -> None:
        """Return the log of a state; nothing is read yet.

        Args:
            store: the store of the root.
            name: the state's name: any string.
            clock: the clock that gives records their timestamps.
            config: the topic config of the log; None for `INTERNAL_LOG_CONFIG`.
        """
        self.directory = self.directory_of(name)
        self.state = self._initial(name)
        self.on_lost_race: Callable[[int], None] = lambda races: None
        self._name = name
        self._clock = clock
        self._log = self._open(store, self.directory, clock, config, has_existence_marker=True)
        self.trimmer = StateLogTrimmer(self._log, clock, self.trim_every)
        self._offset: int | None = None
        self._gaps = 0

    @classmethod
    def _open(
        cls,
        store: Store,
        directory: str,
        clock: Clock,
        config: TopicConfig | None = None,
        *,
        has_existence_marker: bool = False,
    ) -> LocalLog:
        return LocalLog(
            store,
            directory,
            topic_id=cls.topic_id,
            partition=0,
            config=config or INTERNAL_LOG_CONFIG,
            clock=clock,
            has_existence_marker=has_existence_marker,
        )

    @staticmethod
    @abstractmethod
    def _initial(name: str) -> _State:
        """Return the state with this name before its first record."""

    @staticmethod
    @abstractmethod
    def _parse(value: bytes) -> _Record:
        """Return the record with this stored value.

        Raises:
            CorruptRecordError: the value is no such record, or a newer version of spark-log wrote
                it.
        """

    # --- all logs of a kind ----------------------------------------------------------------------

    @classmethod
    def directory_of(cls, name: str) -> str:
        """Return the directory of a state's log, relative to the root."""
        return f"{cls.parent_directory}/{file_name(name)}"

    @classmethod
    def directories(cls, store: Store) -> list[str]:
        """Return the directories of all logs of this kind, relative to the root, sorted.

        Raises:
            StorageError: the storage does not answer.
        """
        parent = cls.parent_directory
        return sorted(f"{parent}/{name}" for name in store.list_directories(parent))

    @classmethod
    def list_names(cls, store: Store, clock: Clock) -> list[str]:
        """Return the names of all states that ever had a record, sorted.

        Raises:
            CorruptRecordError: a log is damaged.
            StorageError: the storage does not answer.
        """
        found: list[str] = []
        for directory in cls.directories(store):
            name = _name_of(directory)
            if name is None:
                newest = cls._read_newest(store, directory, clock)
                name = newest.name if newest else None
            if name is not None:
                found.append(name)
        return sorted(found)

    @classmethod
    def view(cls, store: Store, name: str, clock: Clock) -> StateView[_State]:
        """Return the present state; changes nothing.

        Costs one listing, and one request for the newest segment if it is small.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: the log cannot be read.
        """
        return cls.view_directory(store, cls.directory_of(name), clock, name)

    @classmethod
    def view_directory(
        cls, store: Store, directory: str, clock: Clock, name: str | None = None
    ) -> StateView[_State]:
        """Return the state of the log in a directory; changes nothing.

        Args:
            store: the store of the root.
            directory: the log's directory, relative to the root.
            clock: the clock whose monotonic time decides how long a listing is valid.
            name: the state's name; None to take it from the directory, or from the newest record.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: the log cannot be read.
        """
        newest = cls._read_newest(store, directory, clock)
        if name is None:
            name = _name_of(directory)
        if newest is None:
            return StateView(cls._initial(name or ""))
        initial = cls._initial(newest.name if name is None else name)
        return StateView(initial.replay(cls._parse(newest.value)), newest.changed_us)

    @classmethod
    def _read_newest(cls, store: Store, directory: str, clock: Clock) -> _Newest | None:
        """Return the newest record of the log in a directory; None without a record."""
        log = cls._open(store, directory, clock)
        batches, view = log.read_last()
        if not batches:
            return None
        records = batches[-1].records
        key, value = (records.column(name)[-1].as_py() for name in ("key", "value"))
        changed_us = view.live.segments[-1].file.modified_us
        return _Newest(key.decode("utf-8", "surrogatepass"), value, changed_us)

    # --- one log ---------------------------------------------------------------------------------

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
                record = self._parse(found[-1])
                self.state = self.state.replay(record)
                newest = self._offset - 1
                _log.debug("%s: read offset %d: %s", self.directory, newest, record.headline)
            return found

    @property
    def replayed_offset(self) -> int:
        """The offset after the last record that `state` has; 0 before the first replay."""
        return self._offset or 0

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
        tries_known_state = self._offset is not None and (is_recent or not self.replays_first)
        while True:
            change_id = os.urandom(9).hex()
            try:
                record = None
                if tries_known_state:
                    # Only a record that is appended counts: it shows that the state was the newest.
                    tries_known_state = False
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
                _log.debug(
                    "%s: offset %s is taken by another process: deciding again (lost race %d)",
                    self.directory,
                    self._offset,
                    races,
                )
                self.on_lost_race(races)
            except UnknownOutcomeError as error:
                # The record may be in the log, now or later: the next replay looks for it.
                _log.debug("%s: searching the log for the change: %s", self.directory, error)
                unknown = error
                tried.add(change_id)
            except StorageError as error:
                if unknown is None:
                    raise
                raise unknown from error
            else:
                assert self._offset is not None
                self.trimmer.trim_if_due(self._offset)
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
        after = self.state.replay(record)
        batch = pa.RecordBatch.from_arrays(
            [
                binary_array([self._name.encode("utf-8", "surrogatepass")]),
                binary_array([record.to_json()]),
                pa.nulls(1, HEADERS_TYPE),
                # wall clock: shown to users; no decision depends on it
                timestamp_array(np.array([self._clock.time_us()])),
            ],
            schema=RECORD_SCHEMA,
        )
        self._log.append(batch, compression="zstd", expected_end_offset=self._offset)
        assert self._offset is not None
        _log.debug("%s: appended at offset %d: %s", self.directory, self._offset, record)
        self.state, self._offset = after, self._offset + 1


def _name_of(directory: str) -> str | None:
    """Return the name whose log a directory holds; None if it is too long for a directory name."""
    return text_of(directory.rpartition("/")[2])
