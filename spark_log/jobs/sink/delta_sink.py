"""A sink that writes each record of a group to a Delta table exactly once, with the offsets.

Rows and the offset after them are one commit of the table: the offset is the version of an
application transaction (``txn``), one for each partition. A task that gets a partition reads the
offset from the table and continues there. Delta refuses a commit if another one with the same
application id was made since the table was read. If several tasks append the same records (a task
that was cancelled but still runs, a task that runs twice, or a driver that has lost its membership
and does not know it), only one of them succeeds. The others read the offset again and continue
after it (ADR 12).

A crash at any point leaves only files that no version of the table refers to; ``VACUUM`` removes
them.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError

from spark_log.datasource import LogSplit
from spark_log.errors import StorageError
from spark_log.jobs.sink.delta_rows import (
    LOG_DIRECTORY,
    arrow_schema,
    check_table,
    columns,
    create_table,
    open_table,
    to_rows,
)
from spark_log.storage import StorageOptions, Store, open_store, sync_path
from spark_log.util import one_line

_log = logging.getLogger(__name__)

_MAX_TRIES: Final = 30
_MAX_PAUSE_S: Final = 1.0

COMMIT_OFFSETS: Final = 1_000_000
"""Maximum number of offsets in one commit. A task that dies has to repeat at most this many,
and they must not take longer than ``max.poll.interval.ms``.
"""

_ROW_GROUP_ROWS: Final = 32_768
"""Number of rows in a row group, which is in memory until it is complete; deltalake's default
is a million rows.
"""

ReadSplit = Callable[[LogSplit], Iterator[pa.RecordBatch]]
"""A function that reads a split's records with the columns of the table; keys and values are bytes.
"""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Result of a split.

    Attributes:
        split: the split that the task got.
        reached: the next offset according to the table; it may be after the split's end.
        skipped: the number of offsets of the split that the table had already.
        records: the number of records that this task appended.
    """

    split: LogSplit
    reached: int
    skipped: int
    records: int


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A Delta table, and the consumer group whose offsets it stores. It is pickled to the tasks.

    Attributes:
        url: the table's URL.
        storage_options: the options of the file system; never shown.
        group: the id of the consumer group.
        is_binary: whether keys and values stay bytes instead of becoming text.
    """

    url: str
    storage_options: StorageOptions = field(repr=False)
    group: str
    is_binary: bool = False

    # --- on the driver ---------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the table unless it exists; else check that rows fit, and change nothing.

        Of several processes, the first one creates the table: it writes version 0 of the table's
        log by put-if-absent.

        Raises:
            InvalidOptionError: the directory contains other files, or the table has other columns,
                or its transactions expire.
            StorageError: the table cannot be read or created.
        """
        create_table(self._store(), self._columns())
        check_table(self.open(), self.url, self._columns())

    def version(self) -> int:
        """Return the table's version, which increases with each commit.

        Raises:
            StorageError: the table cannot be read.
        """
        return self.open().version()

    # --- in tasks --------------------------------------------------------------------------------

    def append(self, splits: Sequence[LogSplit], read: ReadSplit) -> Iterator[SplitResult]:
        """Append the records of splits that the table does not have yet.

        Several splits, of about a million offsets together, are one commit. Records are streamed:
        the memory does not depend on their number.

        Args:
            splits: splits of different partitions.
            read: the function that reads a split.

        Yields:
            The result of each split, when it is complete.

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
                # Another commit won the race, or the answer was lost: read the table's offsets.
                tries += 1
                _log.debug("%s: commit %d may have failed: %s", self.url, tries, one_line(error))
                table = self.open()
                before, positions = positions, self._positions_of(table, splits)
                has_moved = before != positions
                if not has_moved and not isinstance(error, DeltaCommitFailedError):
                    raise StorageError(f"{self.url}: commit failed: {one_line(error)}") from error
                if tries >= _MAX_TRIES:
                    raise StorageError(
                        f"{self.url}: commit failed {tries} times, because other commits were "
                        f"first; run fewer writers of this table. The last error: "
                        f"{one_line(error)}"
                    ) from error
                if has_moved:
                    _sync_everything(self._store())
                else:
                    time.sleep(random.uniform(0, min(_MAX_PAUSE_S, 0.02 * 2**tries)))
            else:
                tries = 0
                _log.debug(
                    "%s: committed version %d: %d partitions, %d records",
                    self.url,
                    table.version(),
                    len(chunk),
                    sum(counts.values()),
                )
                _sync_commit(table, self._store())
                for index, part in chunk.items():
                    positions[index] = part.end_offset
                    records[index] += counts[index]

    def open(self) -> DeltaTable:
        """Return the current version of the table.

        Raises:
            StorageError: the table cannot be read, or does not exist.
        """
        table = open_table(self._store())
        if table is None:
            raise StorageError(f"{self.url} is not a Delta table any more")
        return table

    def position(self, table: DeltaTable, topic_id: str, partition: int) -> int | None:
        """Return the next offset of a partition in the table; None if the table has none."""
        position: int | None = table.transaction_version(self.app_id(topic_id, partition))
        return position

    def app_id(self, topic_id: str, partition: int) -> str:
        """Return the application id whose version is the next offset of a partition."""
        return f"spark-log/{self.group}/{topic_id}/{partition}"

    # --- internals -------------------------------------------------------------------------------

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
        """Append parts of splits with their offsets, to the table as it was read.

        Raises:
            DeltaError, OSError: the commit failed, or its outcome is unknown.
        """
        schema = arrow_schema(self._columns())
        failures: list[Exception] = []

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                for index, part in chunk.items():
                    for batch in read(part):
                        counts[index] += batch.num_rows
                        yield to_rows(batch, schema)
            except Exception as error:  # delta-rs raises another error instead
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
    """Return the parts of splits that go into the next commit, by the index of the split."""
    chunk: dict[int, LogSplit] = {}
    left = COMMIT_OFFSETS
    for index, (split, begin) in enumerate(zip(splits, positions, strict=True)):
        end = min(split.end_offset, begin + left)
        if begin < end:
            chunk[index] = replace(split, start_offset=begin, end_offset=end)
            left -= end - begin
    return chunk


def _sync_commit(table: DeltaTable, store: Store) -> None:
    """Sync the last commit to disk, if the table is on a local file system.

    delta-rs does not sync, but the group's offset, which is committed afterwards, is synced.
    Without this, after a power failure the group's offset could be after records that the table has
    lost.
    """
    if not store.is_local:
        return
    home = Path(store.directory_url(""))
    version = home / LOG_DIRECTORY / f"{table.version():020d}.json"
    actions = map(json.loads, version.read_text("utf-8").splitlines())
    added = [home / unquote(action["add"]["path"]) for action in actions if "add" in action]
    for path in dict.fromkeys([*added, *(path.parent for path in added), version, version.parent]):
        with suppress(FileNotFoundError):  # another process has compacted and vacuumed the table
            sync_path(str(path))


def _sync_everything(store: Store) -> None:
    """Sync all files, if the table is on a local file system.

    Another process has made a commit, and may have died before its sync.
    """
    if store.is_local:
        os.sync()
