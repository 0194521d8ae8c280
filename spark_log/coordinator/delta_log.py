"""The log of a Delta table, changed by conditional appends as every log of this package is.

On storage, as the Delta protocol has it (reader version 1, writer version 2)::

    _delta_log/00000000000000000007.json            a version: one action a line
    _delta_log/00000000000000000100.checkpoint.parquet   the state after version 100 (derived)
    _delta_log/_last_checkpoint                     which checkpoint is the newest (derived)

A version is made by put-if-absent of its file, against exactly the state before it: that is what
delta-rs does too, but it lists the log and rebases by itself, where a fence needs a new look
(docs/adr/0011). Checkpoints and their cleaning up are left to delta-rs.

A crash during `append` leaves a version that is there or is not.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.clock import Clock
from spark_log.coordinator.delta_files import DataFile
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.record.arrays import text_scalar
from spark_log.storage import Store

_READER_VERSION, _WRITER_VERSION = 1, 2
_MAX_TRIES = 5
_MAX_AGE_MS = 30 * 60_000.0
"""So long after the log's end was seen, a name behind it may have been used, cleaned up and freed:
only versions older than ``delta.logRetentionDuration`` are, which is an hour at the least."""

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


class DeltaLog:
    """Reads and changes one table's log. For one thread at a time.

    Attributes:
        state: as of the last `refresh`; version -1 where there is no table.
    """

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Touches nothing. Args: directory: the table's, relative to the store's root."""
        self.directory = directory
        self.state = TableState()
        self._store = store
        self._clock = clock
        self._observed_ms: float | None = None

    def refresh(self) -> list[Version] | None:
        """Bring `state` up to the newest version: where nothing is new, one look for a name.

        Returns:
            What came, in order; None where the state was read anew, and nobody can tell.

        Raises:
            StorageError: the log cannot be read, or is damaged.
        """
        now_ms = self._clock.monotonic_ms()
        if self._observed_ms is None or now_ms - self._observed_ms > _MAX_AGE_MS:
            self._observed_ms = None
            self.state = self._opened()
            self._observed_ms = now_ms
            return None
        versions: list[Version] = []
        if self.state.version < 0:
            self.state = self._opened()
            self._observed_ms = now_ms
            return versions if self.state.version < 0 else None
        while (version := self._read(self.state.version + 1)) is not None:
            versions.append(version)
            now_ms = self._clock.monotonic_ms()
        self._observed_ms = now_ms
        return versions

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
            "timestamp": self._clock.time_us() // 1000,
            "operation": operation,
            "operationParameters": dict(details or {}),
            "engineInfo": "spark-log",
            "txnId": str(uuid.uuid4()),
        }
        lines = [{"commitInfo": info}, *actions]
        body = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()
        assert self._observed_ms is not None
        observed_ms = self._observed_ms
        self._put(self._path(number), body, number)
        if self._clock.monotonic_ms() - observed_ms > _MAX_AGE_MS:
            self._observed_ms = None
            raise UnknownOutcomeError(
                f"{self.directory}: version {number} was made so long after the log was read that "
                f"the name may have been free for another reason",
                path=self._path(number),
            )
        version = self._parsed(number, body)
        self._apply(version)
        return version

    def _put(self, path: str, body: bytes, number: int) -> None:
        unknown: UnknownOutcomeError | None = None
        for _ in range(_MAX_TRIES):
            try:
                self._store.put_if_absent(path, body)
            except AlreadyExistsError:
                if unknown is not None and self._store.open_buffer(path).to_pybytes() == body:
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
        """Read the newest state: the last checkpoint and what follows it."""
        before = self.state
        try:
            return self._opened_from(self.last_checkpoint())
        finally:
            self.state = before

    def _opened_from(self, checkpoint: int) -> TableState:
        tried: set[int] = set()
        while True:
            found_state = self._checkpointed(checkpoint) if checkpoint >= 0 else None
            self.state = found_state or TableState()
            tried.add(checkpoint)
            while self._read(self.state.version + 1) is not None:
                pass
            # What is listed behind the end: a late `_last_checkpoint` was too old, or it is a gap.
            end = self.state.version
            behind = [
                file.name
                for file in self._store.list(
                    f"{self.directory}/_delta_log", None if end < 0 else f"{end:020}.json"
                )
            ]
            newer = {int(found[1]) for found in map(_CHECKPOINT_NAME.fullmatch, behind) if found}
            if max(newer - tried, default=-1) > end:
                checkpoint = max(newer - tried)
                continue
            versions = [int(found[1]) for found in map(_VERSION_NAME.fullmatch, behind) if found]
            # One that came to be just now is no gap.
            if max(versions, default=-1) > end and self._read(end + 1) is None:
                raise self._damaged(f"version {end + 1} is missing, and there is {max(versions)}")
            if max(versions, default=-1) > self.state.version:
                continue
            if self.state.version >= 0 and not self.state.table_id:
                raise self._damaged("no version says what the table is")
            return self.state

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
            data = pq.ParquetFile(pa.BufferReader(self._store.open_buffer(path)))
            present = set(_leaves(data.schema_arrow))
            wanted = [
                f"{action}.{name}"
                for action, names in _CHECKPOINT_COLUMNS.items()
                for name in names
                if f"{action}.{name}" in present
            ]
            table = data.read(columns=wanted)
        except (NotFoundError, pa.ArrowException, OSError):
            return None
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
