"""Compares the table of a topic with its logs, as other programs read the one and we the other.

Of a topic that is not compacted the table has, from its start to its end, exactly the log's
committed records. Of a compacted topic it has the last record of each key before its end; the log
may have been compacted further since, and then has a newer record of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.delta import DataFiles
from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log import LeftOutColumns, PartitionLog, SegmentReader
from spark_log.log.files import SegmentName
from spark_log.record import RECORD_SCHEMA, ints_of
from spark_log.table.committer import read_data_file
from spark_log.table.partition_table import PartitionTable, end_offset
from spark_log.table.topic_table import TableVersion, TopicTable

_MAX_FINDINGS: Final = 100
"""Maximum number of findings in one partition: a wrong file would have one for each row."""

_OFFSET: Final = pa.field("offset", pa.int64())
_COLUMNS: Final = RECORD_SCHEMA.names

Rows = tuple[np.ndarray, pa.RecordBatch]
"""The offsets of some rows, and their columns."""


class TableFindingKind(StrEnum):
    """The kind of a difference between a table and its log."""

    GAP = "gap"
    """The table does not have a record of the log that it must have."""

    DUPLICATE = "duplicate"
    """The table has a record twice, or of a compacted topic a key twice."""

    MISMATCH = "mismatch"
    """The table has another record than the log, or one that the log does not have."""

    AHEAD = "ahead"
    """The table has records that may yet be lost, or that are not committed."""

    MISSING_KEY = "missing-key"
    """The last record of a key is in the log and not in the table, or the reverse."""

    FILE = "file"
    """A file of the table is missing, damaged, or not as the version says."""


class TableFinding(NamedTuple):
    """One difference between the table and the log.

    Attributes:
        partition: the partition's number; -1 for the table as a whole.
        kind: the kind of the difference.
        offset: the offset of the record; -1 without one.
        message: what is wrong.
    """

    partition: int
    kind: TableFindingKind
    offset: int
    message: str


def verify_table(version: TableVersion) -> Iterator[TableFinding]:
    """Yield what is wrong with a version as a whole."""
    for path in version.foreign_paths:
        yield TableFinding(-1, TableFindingKind.FILE, -1, f"{path} is no file of the topic's logs")


def verify_partition(
    table: TopicTable,
    version: TableVersion,
    partition: int,
    log: PartitionLog,
    on_progress: Callable[[int], None] = lambda done_bytes: None,
) -> Iterator[TableFinding]:
    """Yield the differences between a version of a table and the log of a partition.

    Memory: a row group; of a compacted topic also the keys.

    Args:
        table: the table.
        version: the version; read before the log is.
        partition: the partition's number.
        log: the partition's log.
        on_progress: called with numbers of bytes of the table as they are read.

    Raises:
        StorageError: the storage does not answer.
    """
    verifier = _PartitionVerifier(table, version, partition, log, on_progress)
    yield from islice(verifier.findings(), _MAX_FINDINGS)


class _PartitionVerifier:
    def __init__(
        self,
        table: TopicTable,
        version: TableVersion,
        partition: int,
        log: PartitionLog,
        on_progress: Callable[[int], None],
    ) -> None:
        self._table = table
        self._version = version
        self._number = partition
        self._partition: PartitionTable = version.partitions[partition]
        self._log = log
        self._on_progress = on_progress
        self._schema = pa.schema([_OFFSET, *RECORD_SCHEMA])

    def findings(self) -> Iterator[TableFinding]:
        """Yield the differences; the last one is a file without which no rows can be compared."""
        try:
            yield from self._differences()
        except (StorageError, CorruptRecordError) as error:
            if isinstance(error, StorageError) and error.retriable:
                raise
            yield self._finding(TableFindingKind.FILE, -1, str(error))

    def _differences(self) -> Iterator[TableFinding]:
        yield from self._check_ranges()
        damaged = list(self._check_files())
        yield from damaged
        view = self._log.observe()
        end = view.log_end_offset
        stable = self._log.end_offset(view, isolation_level="read_committed")
        if self._partition.end > min(end, stable):
            yield self._finding(
                TableFindingKind.AHEAD,
                self._partition.end,
                f"the table ends at {self._partition.end}, and the log at {end}, with committed "
                f"records up to {stable}",
            )
        if damaged:
            return  # rows cannot be read
        start = max(self._partition.start, view.log_start_offset)
        if self._partition.compaction:
            yield from self._compare_keys(start)
        elif not any(name.is_compacted for name in self._partition.files):
            yield from self._compare_rows(start, min(self._partition.end, stable))

    def _finding(self, kind: TableFindingKind, offset: int, message: str) -> TableFinding:
        return TableFinding(self._number, kind, offset, message)

    # --- files -----------------------------------------------------------------------------------

    def _check_ranges(self) -> Iterator[TableFinding]:
        """Check by their names that the files leave no gap and do not overlap (protocol B2)."""
        position = self._partition.start
        for index, name in enumerate(self._partition.files):
            file_name = name.file_name
            if name.base_offset > position:
                yield self._finding(
                    TableFindingKind.GAP, position, f"no file has {position}; next is {file_name}"
                )
            elif name.base_offset < position and index:
                yield self._finding(
                    TableFindingKind.DUPLICATE, name.base_offset, f"{file_name} overlaps a file"
                )
            position = max(position, end_offset(name))
        if position != self._partition.end:
            yield self._finding(
                TableFindingKind.GAP,
                position,
                f"the table ends at {self._partition.end}, and its files end at {position}",
            )

    def _check_files(self) -> Iterator[TableFinding]:
        for name in self._partition.files:
            expected = self._version.file_of(self._number, name)
            directory = self._version.directories[self._number]
            try:
                found = read_data_file(self._table, self._number, directory, name)
                self._check_batches(name)
            except (StorageError, CorruptRecordError) as error:
                if isinstance(error, StorageError) and error.retriable:
                    raise
                yield self._finding(TableFindingKind.FILE, name.base_offset, str(error))
            else:
                if not expected.says_at_most(found):
                    yield self._finding(
                        TableFindingKind.FILE,
                        name.base_offset,
                        f"{expected.path}: the version says {expected.size_bytes} bytes, "
                        f"{expected.stats()}, and the file {found.size_bytes} bytes, "
                        f"{found.stats()}",
                    )

    def _check_batches(self, name: SegmentName) -> None:
        """Check what only other programs read of a file: ``offset`` and the typed columns.

        Raises:
            CorruptRecordError: a part is damaged.
            StorageError: the file is missing.
        """
        reader = self._open(name)
        for ordinal in range(reader.batch_count):
            problem = reader.problem_for_others(ordinal)
            if problem is not None:
                raise CorruptRecordError(f"{reader.path}: {problem}", path=reader.path)

    def _open(self, name: SegmentName) -> SegmentReader:
        table = self._table
        directory = f"{table.directory}/{self._version.directories[self._number]}"
        topic_id = table.topic.topic_id
        return SegmentReader(
            table.store, directory, name, topic_id=topic_id, partition=self._number
        )

    # --- rows ------------------------------------------------------------------------------------

    def _table_rows(self, start: int, end: int) -> Iterator[Rows]:
        for name in self._partition.files:
            if end_offset(name) <= start:
                continue
            file = self._version.file_of(self._number, name)
            left_out = self._open(name).left_out
            schema = self._schema
            if left_out is not None:
                schema = pa.schema([*schema, *left_out.schema])
            files = DataFiles(self._table.store, self._table.directory, schema)
            for part in files.row_groups(file):
                for each in part.combine_chunks().to_batches():
                    offsets = ints_of(each.column("offset"), np.int64)
                    first, last = np.searchsorted(offsets, [start, end])
                    rows = each.slice(first, last - first)
                    if rows.num_rows:
                        yield offsets[first:last], _with_values(rows, left_out)
            self._on_progress(file.size_bytes)

    def _log_rows(self, start: int, end: int | None) -> Iterator[Rows]:
        batches = self._log.scan(start, end, isolation_level="read_committed")
        for batch in batches:
            yield batch.offsets(), batch.records.select(_COLUMNS)

    def _compare_rows(self, start: int, end: int) -> Iterator[TableFinding]:
        """Compare all rows of a topic that is not compacted."""
        table, log = self._table_rows(start, end), self._log_rows(start, end)
        ours, theirs = next(table, None), next(log, None)
        previous = -1
        while ours is not None and theirs is not None:
            count = min(len(ours[0]), len(theirs[0]))
            same = _same_prefix(ours, theirs, count)
            if same:
                previous = int(ours[0][same - 1])
            if same < count:
                at, expected = int(ours[0][same]), int(theirs[0][same])
                if at <= previous:
                    kind, message = TableFindingKind.DUPLICATE, "the table has it twice"
                elif at < expected:
                    kind, message = TableFindingKind.MISMATCH, "the log does not have it"
                elif at > expected:
                    kind, message = TableFindingKind.GAP, "the table does not have it"
                else:
                    kind, message = TableFindingKind.MISMATCH, "table and log have other records"
                yield self._finding(kind, min(at, expected), f"{min(at, expected)}: {message}")
                ours = _behind(ours, same + (at <= expected))
                theirs = _behind(theirs, same + (at >= expected and at > previous))
            else:
                ours, theirs = _behind(ours, count), _behind(theirs, count)
            if not len(ours[0]):
                ours = next(table, None)
            if not len(theirs[0]):
                theirs = next(log, None)
        if ours is not None:
            at = int(ours[0][0])
            yield self._finding(TableFindingKind.MISMATCH, at, f"{at}: the log does not have it")
        if theirs is not None:
            at = int(theirs[0][0])
            yield self._finding(TableFindingKind.GAP, at, f"{at}: the table does not have it")

    # --- compacted topics ------------------------------------------------------------------------

    def _compare_keys(self, start: int) -> Iterator[TableFinding]:
        """Compare the last records of all keys."""
        end = self._partition.end
        table: dict[bytes, tuple[int, int]] = {}
        for offsets, rows in self._table_rows(start, end):
            contents = _hashes(rows)
            for at, key, content in zip(
                offsets.tolist(), rows.column("key").to_pylist(), contents, strict=True
            ):
                if key in table:
                    message = f"{at}: the table has another record of its key, at {table[key][0]}"
                    yield self._finding(TableFindingKind.DUPLICATE, at, message)
                table[key] = at, content
        newest, before = self._last_of_keys(start, end)
        yield from self._compare_ends(table, before)
        for key, (at, _) in table.items():
            if newest.get(key, -1) < at:
                message = f"{at}: the log has neither this record nor a newer one of its key"
                yield self._finding(TableFindingKind.MISSING_KEY, at, message)

    def _last_of_keys(
        self, start: int, end: int
    ) -> tuple[dict[bytes, int], dict[bytes, tuple[int, int, bool]]]:
        """Return of each key in the log its last offset, and its last record before an offset."""
        newest: dict[bytes, int] = {}
        before: dict[bytes, tuple[int, int, bool]] = {}
        for offsets, rows in self._log_rows(start, None):
            contents = _hashes(rows)
            values = rows.column("value").is_valid().to_pylist()
            for at, key, content, has_value in zip(
                offsets.tolist(), rows.column("key").to_pylist(), contents, values, strict=True
            ):
                newest[key] = at
                if at < end:
                    before[key] = at, content, has_value
        return newest, before

    def _compare_ends(
        self,
        table: Mapping[bytes, tuple[int, int]],
        before: Mapping[bytes, tuple[int, int, bool]],
    ) -> Iterator[TableFinding]:
        """Compare the rows of the table with the last records before its end."""
        end = self._partition.end
        for key, (at, content, has_value) in before.items():
            known = table.get(key)
            if known is None:
                if has_value:
                    message = f"{at}: the last record of its key before {end} is not in the table"
                    yield self._finding(TableFindingKind.MISSING_KEY, at, message)
            elif known != (at, content):
                message = f"{known[0]}: the last record of its key before {end} is at {at}"
                if known[0] == at:
                    message = f"{at}: table and log have other records"
                yield self._finding(TableFindingKind.MISMATCH, known[0], message)


def _with_values(rows: pa.RecordBatch, left_out: LeftOutColumns | None) -> pa.RecordBatch:
    """Return the columns of the log, with the values that the file left out."""
    if left_out is not None:
        columns = {name: rows.column(name) for name in rows.schema.names}
        values = left_out.give_back(rows.column("value"), columns)
        rows = rows.set_column(rows.schema.get_field_index("value"), "value", values)
    return rows.select(_COLUMNS)


def _same_prefix(ours: Rows, theirs: Rows, count: int) -> int:
    """Return the number of equal rows at the beginning."""
    if np.array_equal(ours[0][:count], theirs[0][:count]) and _equal(ours, theirs, 0, count):
        return count
    low, high = 0, count  # the first `low` rows are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        is_same = np.array_equal(ours[0][low:middle], theirs[0][low:middle])
        if is_same and _equal(ours, theirs, low, middle):
            low = middle
        else:
            high = middle
    return low


def _equal(ours: Rows, theirs: Rows, first: int, last: int) -> bool:
    length = last - first
    return bool(ours[1].slice(first, length).equals(theirs[1].slice(first, length)))


def _behind(rows: Rows, count: int) -> Rows:
    return rows[0][count:], rows[1].slice(count)


def _hashes(rows: pa.RecordBatch) -> list[int]:
    """Return a hash of each row, without its key and offset."""
    columns = [rows.column(name).to_pylist() for name in ("timestamp", "value", "headers")]
    return [hash(repr(row)) for row in zip(*columns, strict=True)]
