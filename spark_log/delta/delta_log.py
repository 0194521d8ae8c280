"""The log of a Delta table, changed by conditional appends as every log of this package is.

On storage, as the Delta protocol has it (reader version 1, writer version 2)::

    _delta_log/00000000000000000007.json            a version: one action a line
    _delta_log/00000000000000000100.checkpoint.parquet   the state after version 100 (derived)
    _delta_log/_last_checkpoint                     which checkpoint is the newest (derived)

A version is made by put-if-absent of its file, against exactly the state before it: that is what
delta-rs does too, but it lists the log and rebases by itself, where a fence needs a new look
(docs/adr/0011). delta-rs writes the checkpoints; `delta_cleanup` frees old versions.

Versions are freed from the oldest on, and only where a checkpoint lies above them. So two things
tell that names above a version have been freed: its own file is gone, or there is a checkpoint
above the end that the names seem to have. Neither is ever taken for the end, and a version that was
put into a freed name is *void*: nobody reads it, its maker is not told of success, and the file
stays until it is as old as others that are freed. This package frees no name within an hour
(`spark_log.storage.listing_validity`); other programs that clean up by a wrong clock may do so at
once, which the same two things show.

A crash during `append` leaves a version that is there or is not.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.clock import Clock
from spark_log.delta.files import DataFile
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.record.arrays import text_scalar
from spark_log.storage import Store, is_listing_valid, listing_validity_ms
from spark_log.suppressed import IN_PROCESS

_READER_VERSION, _WRITER_VERSION = 1, 2
_MAX_TRIES = 5
_VERSION_NAME = re.compile(r"(\d{20})\.json")
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint\.parquet")
_CHECKPOINT_COLUMNS = {
    "add": ["path", "size", "stats"],
    "txn": ["appId", "version", "lastUpdated"],
    "metaData": ["id", "configuration", "schemaString", "partitionColumns"],
    "protocol": ["minReaderVersion", "minWriterVersion"],
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """How far an application has come (``txn``): here a group and its generation.

    Attributes:
        app_id: whose.
        version: never goes back.
        last_updated_ms: of the newest row that came with it, rounded up.
    """

    app_id: str
    version: int
    last_updated_ms: int = 0

    def to_action(self) -> dict[str, object]:
        """Return it as a line of a version."""
        return {
            "txn": {
                "appId": self.app_id,
                "version": self.version,
                "lastUpdated": self.last_updated_ms,
            }
        }


@dataclass(frozen=True, slots=True)
class Version:
    """What one version changed.

    Attributes:
        number: of the version.
        added: new files.
        removed: paths of files that are gone.
        transactions: that moved on.
        is_rewrite: the same rows in other files, or without those that were not needed any more.
    """

    number: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    transactions: tuple[Transaction, ...]
    is_rewrite: bool


@dataclass(slots=True)
class TableState:
    """A table after some version."""

    version: int = -1
    table_id: str = ""
    configuration: dict[str, str] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    recent: dict[str, Transaction] = field(default_factory=dict)
    older: pa.Table | None = None
    """Those of the checkpoint, sorted: one for every group that there ever was."""

    def transaction(self, app_id: str) -> Transaction | None:
        """Return how far an application has come."""
        found = self.recent.get(app_id)
        if found is None and self.older is not None:
            at = pc.index(self.older.column("appId"), text_scalar(app_id)).as_py()
            if at >= 0:
                row = self.older.slice(at, 1).to_pylist()[0]
                found = Transaction(app_id, row["version"], row["lastUpdated"] or 0)
        return found

    def transactions(self) -> dict[str, Transaction]:
        """Return all of them: as many as there ever were groups."""
        older = [] if self.older is None else self.older.to_pylist()
        found = {
            row["appId"]: Transaction(row["appId"], row["version"], row["lastUpdated"] or 0)
            for row in older
        }
        return found | self.recent


@dataclass(slots=True)
class Listed:
    """What a listing showed of a log.

    Attributes:
        versions: by number, when each appeared, in microseconds since the epoch, by the storage.
        checkpoints: likewise.
    """

    versions: dict[int, int] = field(default_factory=dict)
    checkpoints: dict[int, int] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest version that is there, or that a checkpoint tells of; -1 for none."""
        return max(*self.versions, *self.checkpoints, -1, -1)


class DeltaLog:
    """Reads and changes one table's log. For one thread at a time.

    Attributes:
        state: as of the last `refresh`; version -1 where there is no table.
        modified_us: the newest last-modified of a version that the storage has shown: a lower bound
            of its present time, which costs no request; 0 without one.
    """

    free_delay_ms: ClassVar[float] = 3_600_000.0
    """For so long versions, and data files that no version names, are kept at the least."""

    sure_ms: ClassVar[float] = 500.0
    """From a listing before a put to the put's answer: in less time nobody makes versions and a
    checkpoint above them, and frees them, by however wrong a clock. Else one lists again."""

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Touch nothing.

        Args:
            store: where the table lies.
            directory: the table's, relative to the store's root.
            clock: dates versions for people, and measures how long a look counts.
        """
        self.directory = directory
        self.log_directory = f"{directory}/_delta_log"
        self.state = TableState()
        self.modified_us = 0
        self._store = store
        self._clock = clock
        self._observed_ms: float | None = None

    def refresh(self) -> list[Version] | None:
        """Bring `state` up to the newest version: where nothing is new, one look.

        That is a look for a name where files are local, and a short listing elsewhere.

        Returns:
            What came, in order; None where the state was read anew, and nobody can tell.

        Raises:
            StorageError: the log cannot be read, or is damaged.
        """
        observed_ms = self._clock.monotonic_ms()
        if self.state.version >= 0 and self._is_known():
            self._observed_ms = None  # whoever fails on the way reads all anew the next time
            versions = self._read_on()
            if versions is not None:
                self._observed_ms = observed_ms
                return versions
            observed_ms = self._clock.monotonic_ms()
        self._observed_ms = None
        before, found = self.state.version, self._opened()
        if found.version < before:
            raise self._damaged(
                f"its last version is {found.version}, and this process has read {before}: "
                f"files were removed, and with them commits"
            )
        self.state = found
        self._observed_ms = observed_ms
        return None if before >= 0 or self.state.version >= 0 else []

    def _is_known(self) -> bool:
        """Whether what was known of the log's names still counts."""
        return self._observed_ms is not None and is_listing_valid(
            self._clock, self._observed_ms, listing_validity_ms(self.free_delay_ms)
        )

    def append(
        self,
        actions: Sequence[Mapping[str, object]],
        operation: str,
        details: Mapping[str, object] | None = None,
    ) -> Version:
        """Make the version behind `state`, which has to be the newest.

        Args:
            actions: lines of the version.
            operation: what it does, for Delta's history.
            details: for people.

        Raises:
            LogEndOffsetMismatchError: another version came first; nothing was changed. `refresh`.
            UnknownOutcomeError: it may have been made, or come to be made.
            StorageError: nothing was changed.
        """
        number = self.state.version + 1
        info = {
            "timestamp": self._clock.time_us() // 1000,  # wall clock: Delta's history, for people
            "operation": operation,
            "operationParameters": dict(details or {}),
            "engineInfo": "spark-log",
            "txnId": str(uuid.uuid4()),
        }
        lines = [{"commitInfo": info}, *actions]
        body = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()
        assert self._observed_ms is not None
        self._put(self._path(number), body, number)
        if not self._is_behind_known(number):
            self._observed_ms = None  # whatever is found out, what is known does not count any more
            self._check_live(number)
        version = self._parsed(number, body)
        self._apply(version)
        return version

    def listed(self, first: int = 0) -> Listed:
        """Return what is listed of the log from a version on.

        Raises:
            StorageError: the storage does not answer.
        """
        listed = Listed()
        start_after = f"{first:020}" if first > 0 else None
        for file in self._store.list(self.log_directory, start_after):
            if found := _VERSION_NAME.fullmatch(file.name):
                listed.versions[int(found[1])] = file.modified_us
                self._note_time(file.modified_us)
            elif found := _CHECKPOINT_NAME.fullmatch(file.name):
                listed.checkpoints[int(found[1])] = file.modified_us
        return listed

    def checkpoint_before(self, listed: Listed, last: int) -> int | None:
        """Return the newest checkpoint up to a version that can be read; None without one.

        Raises:
            StorageError: the storage does not answer.
        """
        found = self._newest_checkpoint(listed, last)
        return None if found is None else found.version

    def state_at(self, version: int, listed: Listed) -> TableState | None:
        """Return the table after an older version; None where that is not kept any more.

        Raises:
            StorageError: the log cannot be read, or is damaged.
        """
        before = self.state
        try:
            self.state = self._newest_checkpoint(listed, version) or TableState()
            self._read_up_to(version)
            return self.state if self.state.version == version else None
        finally:
            self.state = before

    def _put(self, path: str, body: bytes, number: int) -> None:
        unknown: UnknownOutcomeError | None = None
        for _ in range(_MAX_TRIES):
            try:
                self._store.put_if_absent(path, body)
            except AlreadyExistsError:
                if unknown is not None and self._is_there(path, body, unknown):
                    return  # ours: the put whose answer was lost
                raise LogEndOffsetMismatchError(
                    f"{self.directory}: version {number} was made by another process first",
                    expected=number,
                    actual=number + 1,
                ) from None
            except UnknownOutcomeError as error:
                if error.is_visible:
                    raise
                unknown = error  # the same bytes again: at most one of them is ever there
            except StorageError:
                if unknown is None:
                    raise
                raise unknown from None
            else:
                return
        assert unknown is not None
        raise unknown

    def _is_there(self, path: str, body: bytes, unknown: UnknownOutcomeError) -> bool:
        """Return whether a version holds these bytes; durable then."""
        try:
            if self._store.open_buffer(path).to_pybytes() != body:
                return False
            self._store.sync(path)
        except StorageError:
            raise unknown from None
        return True

    # --- names that were freed -------------------------------------------------------------------

    def _read_on(self) -> list[Version] | None:
        """Read the versions behind `state`; None where names behind it have been freed."""
        known = self.state.version
        if self._store.is_mapped:
            versions = self._read_up_to(None)
            return versions if self._nothing_freed_since(known) else None
        listed = self.listed(known)
        if known not in listed.versions:
            return None
        versions = self._read_up_to(listed.newest)
        # A listing may leave out what comes during it: then it is there now.
        return versions if self.state.version >= listed.newest else None

    def _read_up_to(self, last: int | None) -> list[Version]:
        """Read the versions behind `state`, in order, until one is not there or it is the last."""
        versions = []
        while last is None or self.state.version < last:
            version = self._read(self.state.version + 1)
            if version is None:
                break
            versions.append(version)
        return versions

    def _nothing_freed_since(self, known: int) -> bool:
        """Whether no name above a version was freed by now; only for where a look costs little.

        Whoever frees names has made a checkpoint above them, says so in ``_last_checkpoint``, and
        begins with the oldest name.
        """
        if self.last_checkpoint() > self.state.version:
            return False
        try:
            if known >= 0:
                self._note_time(self._store.head(self._path(known)).modified_us)
        except NotFoundError:
            return False
        return True

    def _is_behind_known(self, number: int) -> bool:
        """Whether the name of a version that was just put certainly was free because it was new."""
        if not self._is_known():
            return False
        assert self._observed_ms is not None
        if not self._store.is_mapped:
            return self._clock.monotonic_ms() - self._observed_ms < self.sure_ms
        try:
            if number > 0:
                self._store.head(self._path(number - 1))
            return self.last_checkpoint() <= number
        except StorageError:
            return False

    def _check_live(self, number: int) -> None:
        """Find out by a listing whether a version that was just put is one that others read.

        Raises:
            LogEndOffsetMismatchError: it is void: the name had been used, and freed.
            UnknownOutcomeError: that cannot be told any more.
        """
        try:
            listed = self.listed(max(number - 1, 0))
        except StorageError as error:
            raise self._unknown(number, f"and the log cannot be listed: {error}") from error
        ours = listed.versions.get(number)
        above = [time for version, time in listed.checkpoints.items() if version >= number]
        is_adjacent = number == 0 or number - 1 in listed.versions.keys() | listed.checkpoints
        if ours is not None and is_adjacent and not above:
            return
        if ours is not None and any(time < ours for time in above):
            raise LogEndOffsetMismatchError(
                f"{self.directory}: other versions {number} and above have been made and freed "
                f"since the log was read; nothing was changed",
                expected=number,
                actual=max(listed.checkpoints),
            )
        raise self._unknown(number, "and what came of it has been cleaned up")

    def _unknown(self, number: int, why: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self.directory}: version {number} was made so long after the log was read that the "
            f"name may have been free for another reason, {why}; read the log again",
            path=self._path(number),
        )

    def _note_time(self, modified_us: int) -> None:
        self.modified_us = max(self.modified_us, modified_us)

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, number: int) -> Version | None:
        try:
            body = self._store.open_buffer(self._path(number)).to_pybytes()
        except NotFoundError:
            return None
        version = self._parsed(number, body)
        self._apply(version)
        return version

    def _parsed(self, number: int, body: bytes) -> Version:
        added: list[DataFile] = []
        removed: list[str] = []
        transactions: list[Transaction] = []
        rewrites = True
        try:
            for line in body.splitlines():
                for kind, action in json.loads(line).items():
                    if kind == "add":
                        added.append(DataFile.from_action(action))
                        rewrites &= not action["dataChange"]
                    elif kind == "remove":
                        removed.append(action["path"])
                    elif kind == "txn":
                        updated_ms = action.get("lastUpdated") or 0
                        transactions.append(
                            Transaction(action["appId"], action["version"], updated_ms)
                        )
                    elif kind == "metaData":
                        self._take_metadata(self.state, action)
                    elif kind == "protocol":
                        self._check_protocol(action)
                    elif kind == "commitInfo":
                        rewrites |= action.get("operation") == "OPTIMIZE"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"version {number} cannot be understood ({error})") from None
        return Version(
            number, tuple(added), tuple(removed), tuple(transactions), bool(removed) and rewrites
        )

    def _apply(self, version: Version) -> None:
        for path in version.removed:
            self.state.files.pop(path, None)
        self.state.files.update((file.path, file) for file in version.added)
        self.state.recent.update((each.app_id, each) for each in version.transactions)
        self.state.version = version.number

    def _opened(self) -> TableState:
        """Read the newest state: the newest checkpoint and what follows it."""
        before = self.state
        try:
            return self._opened_from(self.last_checkpoint())
        finally:
            self.state = before

    def _opened_from(self, first: int) -> TableState:
        gap: tuple[int, int] | None = None
        while True:
            # The listing first: a version below the newest checkpoint may be void.
            listed = self.listed(max(first, 0))
            opened = self._newest_checkpoint(listed)
            if opened is None and first > 0:
                first = 0  # what `_last_checkpoint` names is not there, or cannot be read
                continue
            self.state = opened or TableState()
            self._read_up_to(None)
            end = self.state.version
            if end >= listed.newest:
                if end >= 0 and not self.state.table_id:
                    raise self._damaged("no version says what the table is")
                return self.state
            # One that was freed meanwhile is no gap: the next listing shows what lies above it.
            if gap == (end, listed.newest):
                raise self._damaged(f"version {end + 1} is missing, and there is {listed.newest}")
            gap = (end, listed.newest)

    def _newest_checkpoint(self, listed: Listed, last: float = math.inf) -> TableState | None:
        """Return the state of the newest checkpoint, up to a version, that can be read."""
        for version in sorted(listed.checkpoints, reverse=True):
            found = self._checkpointed(version) if version <= last else None
            if found is not None:
                return found
        return None

    def last_checkpoint(self) -> int:
        """Return the version of the newest checkpoint that is known; -1 for none."""
        try:
            path = f"{self.directory}/_delta_log/_last_checkpoint"
            found = json.loads(self._store.open_buffer(path).to_pybytes())
            return int(found["version"]) if not found.get("parts") else -1
        except NotFoundError:
            return -1
        except (ValueError, KeyError, TypeError):
            return -1  # derived: all versions are read, or the listing shows a better one

    def _checkpointed(self, version: int) -> TableState | None:
        """Return the state that a checkpoint holds; None where it cannot be read: it is derived."""
        path = f"{self.directory}/_delta_log/{version:020}.checkpoint.parquet"
        try:
            return self._parsed_checkpoint(version, self._store.open_buffer(path))
        except NotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            IN_PROCESS.add("checkpoint", self.directory, error)
            return None

    def _parsed_checkpoint(self, version: int, buffer: pa.Buffer) -> TableState:
        data = pq.ParquetFile(pa.BufferReader(buffer))
        present = set(_leaves(data.schema_arrow))
        wanted = [
            f"{action}.{name}"
            for action, names in _CHECKPOINT_COLUMNS.items()
            for name in names
            if f"{action}.{name}" in present
        ]
        table = data.read(columns=wanted)
        state = TableState(version)
        for action in _actions(table, "metaData"):
            self._take_metadata(state, action)
        for action in _actions(table, "protocol"):
            self._check_protocol(action)
        for action in _actions(table, "add"):
            file = DataFile.from_action(action)
            state.files[file.path] = file
        transactions = table.column("txn").combine_chunks() if "txn" in table.column_names else None
        if transactions is not None:
            transactions = transactions.filter(transactions.is_valid())
            transactions.validate(full=True)
            state.older = pa.table(
                {
                    name: pc.struct_field(transactions, name)
                    if transactions.type.get_field_index(name) >= 0
                    else pa.nulls(len(transactions), pa.int64())
                    for name in _CHECKPOINT_COLUMNS["txn"]
                }
            )
        return state

    def _take_metadata(self, state: TableState, action: Mapping[str, Any]) -> None:
        state.table_id = action["id"]
        state.configuration = dict(action.get("configuration") or {})
        if action.get("partitionColumns"):
            raise self._damaged(
                f"it is partitioned by {', '.join(action['partitionColumns'])} by another program"
            )

    def _check_protocol(self, action: Mapping[str, Any]) -> None:
        reader, writer = action["minReaderVersion"], action["minWriterVersion"]
        if reader > _READER_VERSION or writer > _WRITER_VERSION:
            raise StorageError(
                f"{self.directory}: another program has changed the table to Delta protocol "
                f"{reader}, {writer}; this spark-log knows {_READER_VERSION}, {_WRITER_VERSION}: "
                f"take back what changed it, or spark-log groups repair",
                path=self.directory,
            )

    def _path(self, number: int) -> str:
        return f"{self.directory}/_delta_log/{number:020}.json"

    def _damaged(self, what: str) -> StorageError:
        return StorageError(
            f"{self.directory} is damaged: {what}; see what can be saved: spark-log groups repair",
            path=self.directory,
        )


def _actions(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    if kind not in table.column_names:
        return []
    column = table.column(kind)
    found = []
    for action in column.filter(column.is_valid()).to_pylist():
        if isinstance(action.get("configuration"), Iterable):
            action["configuration"] = dict(action["configuration"])
        found.append(action)
    return found


def _leaves(schema: pa.Schema) -> Iterable[str]:
    for parent in schema:
        if pa.types.is_struct(parent.type):
            for at in range(parent.type.num_fields):
                yield f"{parent.name}.{parent.type.field(at).name}"
