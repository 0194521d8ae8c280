"""A Delta table that takes each record of a group once, whatever dies: positions go in with rows.

Rows and the position behind them are one commit of the table: the position is the version of an
application transaction (``txn``), one for each partition. Who is given a partition asks the table
where to go on. Delta refuses a commit when another one with the same application id came since
the table was read: so of a task that was given up but still runs, one that runs twice, or a driver
that does not know yet that the group goes on without it, only one appends a record; the others look
again, and go on behind it (ADR 12).

A crash at any point leaves files that no version of the table names (``VACUUM`` removes them), and
else nothing.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError

from spark_log.datasource.read.splits import LogSplit
from spark_log.errors import StorageError
from spark_log.jobs.delta_rows import (
    LOG_DIRECTORY,
    arrow_schema,
    check_table,
    columns,
    create_table,
    open_table,
    to_rows,
)
from spark_log.storage import StorageOptions, Store, open_store

_MAX_TRIES: Final = 30
_MAX_PAUSE_S: Final = 1.0

COMMIT_OFFSETS: Final = 1_000_000
"""So many offsets go into one commit at most: what a task that dies has to do again, and what may
take no longer than ``max.poll.interval.ms``."""

_ROW_GROUP_ROWS: Final = 32_768
"""A row group is in memory until it is whole, and deltalake's own are of a million rows."""

ReadSplit = Callable[[LogSplit], Iterator[pa.RecordBatch]]
"""Reads a split's records, with the columns of a table; keys and values are bytes."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What a task did with a split.

    Attributes:
        split: that it was given.
        reached: the next offset, as the table has it now: perhaps behind the split's end.
        skipped: offsets of the split that the table had already.
        records: that this task appended.
    """

    split: LogSplit
    reached: int
    skipped: int
    records: int


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A table, and the group whose positions it keeps. Goes to tasks as it is.

    Attributes:
        url: of the table.
        storage_options: for the file system; never shown.
        group: the consumer group's id.
        is_binary: keys and values stay bytes instead of becoming text.
    """

    url: str
    storage_options: StorageOptions = field(repr=False)
    group: str
    is_binary: bool = False

    # --- on the driver ---------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the table where there is none, else check that rows fit in; touches nothing else.

        Whoever is first makes it: the version 0 of its log, by put-if-absent.

        Raises:
            InvalidOptionError: other things lie there, or the table has other columns, or forgets
                transactions.
            StorageError: it cannot be read or made.
        """
        create_table(self._store(), self._columns())
        check_table(self.open(), self.url, self._columns())

    def version(self) -> int:
        """Return the table's version: it grows with each commit.

        Raises:
            StorageError: it cannot be read.
        """
        return self.open().version()

    # --- in tasks --------------------------------------------------------------------------------

    def append(self, splits: Sequence[LogSplit], read: ReadSplit) -> Iterator[SplitResult]:
        """Append the records of splits that the table does not have yet.

        Several splits, of about a million offsets together, are one commit. Records stream through;
        memory does not depend on how many there are.

        Args:
            splits: each of another partition.
            read: reads them.

        Yields:
            What was done, for each split, when it was.

        Raises:
            StorageError: the table cannot be written.
            OffsetOutOfRangeError, CorruptRecordError: the log cannot be read.
        """
        table = self.open()
        positions = self._positions_of(table, splits)
        skipped = {
            index: max(0, min(at, split.end_offset) - split.start_offset)
            for index, (split, at) in enumerate(zip(splits, positions, strict=True))
        }
        if any(skipped.values()):
            _sync_everything(self._store())
        records = [0] * len(splits)
        is_yielded = [False] * len(splits)
        tries = 0
        while True:
            for index, split in enumerate(splits):
                if positions[index] >= split.end_offset and not is_yielded[index]:
                    is_yielded[index] = True
                    yield SplitResult(split, positions[index], skipped[index], records[index])
            chunk = _next_chunk(splits, positions)
            if not chunk:
                return
            counts = dict.fromkeys(chunk, 0)
            try:
                self._commit(table, chunk, read, counts)
            except (DeltaError, OSError) as error:
                # Somebody else's commit came first, or an answer was lost: the table tells.
                tries += 1
                table = self.open()
                before, positions = positions, self._positions_of(table, splits)
                has_moved = before != positions
                if not has_moved and not isinstance(error, DeltaCommitFailedError):
                    raise StorageError(f"{self.url} was not written: {_line(error)}") from error
                if tries >= _MAX_TRIES:
                    raise StorageError(
                        f"{self.url} was not written: other commits came first {tries} times; "
                        f"the last time it said: {_line(error)}"
                    ) from error
                if has_moved:
                    _sync_everything(self._store())
                else:
                    time.sleep(random.uniform(0, min(_MAX_PAUSE_S, 0.02 * 2**tries)))
            else:
                tries = 0
                _sync_commit(table, self._store())
                for index, part in chunk.items():
                    positions[index] = part.end_offset
                    records[index] += counts[index]

    def open(self) -> DeltaTable:
        """Return the table as it is now.

        Raises:
            StorageError: it cannot be read.
        """
        table = open_table(self._store())
        if table is None:
            raise StorageError(f"{self.url} is gone: there is no Delta table")
        return table

    def position(self, table: DeltaTable, topic_id: str, partition: int) -> int | None:
        """Return the next offset that a table wants of a partition; None for none."""
        position: int | None = table.transaction_version(self.app_id(topic_id, partition))
        return position

    def app_id(self, topic_id: str, partition: int) -> str:
        """Return the application id whose version is the position in a partition."""
        return f"spark-log/{self.group}/{topic_id}/{partition}"

    # --- how -------------------------------------------------------------------------------------

    def _store(self) -> Store:
        return open_store(self.url, self.storage_options)

    def _columns(self) -> dict[str, str]:
        return columns(is_binary=self.is_binary)

    def _positions_of(self, table: DeltaTable, splits: Sequence[LogSplit]) -> list[int]:
        found = (self.position(table, split.topic_id, split.partition) for split in splits)
        return [max(split.start_offset, at or 0) for split, at in zip(splits, found, strict=True)]

    def _commit(
        self,
        table: DeltaTable,
        chunk: Mapping[int, LogSplit],
        read: ReadSplit,
        counts: dict[int, int],
    ) -> None:
        """Append a part of splits, and move the positions, on the table as it was read.

        Raises:
            DeltaError, OSError: not done, or not known to be.
        """
        schema = arrow_schema(self._columns())
        failures: list[Exception] = []

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                for index, part in chunk.items():
                    for batch in read(part):
                        counts[index] += batch.num_rows
                        yield to_rows(batch, schema)
            except Exception as error:  # what comes out of Rust is another one
                failures.append(error)
                raise

        moved = [
            Transaction(self.app_id(part.topic_id, part.partition), part.end_offset)
            for part in chunk.values()
        ]
        try:
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, rows()),
                mode="append",
                writer_properties=WriterProperties(
                    compression="SNAPPY", max_row_group_size=_ROW_GROUP_ROWS
                ),
                commit_properties=CommitProperties(app_transactions=moved),
            )
        except (DeltaError, OSError):
            if failures:
                raise failures[0] from None
            raise


def _next_chunk(splits: Sequence[LogSplit], positions: Sequence[int]) -> dict[int, LogSplit]:
    """Return the parts of splits that go into one commit, by the splits' places."""
    chunk: dict[int, LogSplit] = {}
    left = COMMIT_OFFSETS
    for index, (split, begin) in enumerate(zip(splits, positions, strict=True)):
        end = min(split.end_offset, begin + left)
        if begin < end:
            chunk[index] = LogSplit(
                split.topic, split.partition, split.topic_id, split.directory, begin, end
            )
            left -= end - begin
    return chunk


def _sync_commit(table: DeltaTable, store: Store) -> None:
    """Sync what was just committed, where it lies on a disk of this machine.

    delta-rs does not, and the group's position, which is committed behind it, is synced: after a
    power failure the group would stand behind records that the table has lost.
    """
    if not store.is_mapped:
        return
    home = Path(store.directory_url(""))
    version = home / LOG_DIRECTORY / f"{table.version():020d}.json"
    actions = map(json.loads, version.read_text("utf-8").splitlines())
    added = [home / unquote(action["add"]["path"]) for action in actions if "add" in action]
    for path in dict.fromkeys([*added, *(path.parent for path in added), version, version.parent]):
        with suppress(FileNotFoundError):  # compacted and vacuumed meanwhile, by somebody
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _sync_everything(store: Store) -> None:
    """Sync what somebody else committed, who may have died before he did."""
    if store.is_mapped:
        os.sync()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
