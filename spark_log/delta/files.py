"""Parquet data files of the offsets table. The log has the smallest and largest group of each file.

A commit writes a small file with rows of any groups. Compacted files are sorted by group, so that a
reader can skip files and row groups by their statistics.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.errors import NotFoundError, StorageError
from spark_log.record import text_scalar
from spark_log.storage import RangedFile, Store, is_topic_directory
from spark_log.util import parse_json

ROW_GROUP_ROWS = 16_384
_MAX_STATISTIC_CHARACTERS = 1000
_READ_WHOLE_BYTES = 1 << 20
_MAX_PLAIN_DIGITS = 38

_FEW_ROWS = 500
"""Number of rows up to which a file is small."""

_FORMAT: dict[str, Any] = {"compression": "zstd"}
_SMALL_FORMAT: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": ["group"],
    "store_schema": False,
}
"""The format of a file with few rows: compression and dictionaries would take most of the time of
writing or reading it, and save nothing."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table.

    Attributes:
        path: the file's path, relative to the table's directory.
        size_bytes: the length of the file.
        num_rows: the number of rows; -1 if another program did not record it.
        min_values: by column, the smallest value in the file, as JSON has it, with a `Decimal` for
            a number with a fraction; the fields of a STRUCT in a mapping. A column that was not
            counted is missing, here and in the next two.
        max_values: by column, the largest value in the file, or a larger one.
        null_counts: by column, the number of nulls in the file.
        partition_values: by partition column, the value of all rows, as text.
        modified_ms: the time that Delta's history shows for the file.
        tags: what the writer tells of the file, by name.
    """

    path: str
    size_bytes: int
    num_rows: int = -1
    min_values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    null_counts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    partition_values: Mapping[str, str] = field(default_factory=dict, hash=False)
    modified_ms: int = field(default=0, compare=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def may_hold(self, column: str, value: Any) -> bool:
        """Return whether the file may hold rows with a value."""
        least, most = self.min_values.get(column), self.max_values.get(column)
        return (least is None or least <= value) and (most is None or value <= most)

    def stats(self) -> str:
        """Return the statistics as Delta's JSON."""
        stats: dict[str, Any] = {"numRecords": self.num_rows}
        if self.min_values:
            stats["minValues"] = dict(self.min_values)
            stats["maxValues"] = dict(self.max_values)
            stats["nullCount"] = dict(self.null_counts)
        return _json_of(stats)

    def says_at_most(self, other: DataFile) -> bool:
        """Return whether another description of this file has all that this one says, or more.

        Statistics may be missing here: an earlier release did not write all of them.
        """
        return (
            (self.path, self.size_bytes, self.num_rows, self.partition_values)
            == (other.path, other.size_bytes, other.num_rows, other.partition_values)
            and _is_part(self.min_values, other.min_values)
            and _is_part(self.max_values, other.max_values)
            and _is_part(self.null_counts, other.null_counts)
        )

    def to_add(self, time_ms: int, *, is_new: bool = True) -> dict[str, object]:
        """Return the action that adds the file; ``is_new``: whether the table gets new rows."""
        return {
            "add": {
                "path": self.path,
                "partitionValues": dict(self.partition_values),
                "size": self.size_bytes,
                "modificationTime": time_ms,
                "dataChange": is_new,
                "stats": self.stats(),
                **({"tags": dict(self.tags)} if self.tags else {}),
            }
        }

    def to_remove(self, time_ms: int, *, is_change: bool) -> dict[str, object]:
        """Return the action that removes the file; ``is_change``: whether the table loses rows."""
        return {
            "remove": {
                "path": self.path,
                "deletionTimestamp": time_ms,
                "dataChange": is_change,
                "extendedFileMetadata": True,
                "partitionValues": dict(self.partition_values),
                "size": self.size_bytes,
            }
        }

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> DataFile:
        """Return the file of an ``add`` action."""
        path = action["path"]
        if path.startswith("/") or "://" in path or ".." in path.split("/"):
            raise ValueError(f"the path {path!r:.200} leads out of the table")
        stats = parse_json(action.get("stats") or "{}", decimals=True)
        return cls(
            path,
            action["size"],
            stats.get("numRecords", -1),
            stats.get("minValues") or {},
            stats.get("maxValues") or {},
            stats.get("nullCount") or {},
            dict(action.get("partitionValues") or {}),
            action.get("modificationTime") or 0,
            dict(action.get("tags") or {}),
        )


def _is_part(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Return whether each value of nested mappings is in others, too."""
    return all(
        name in whole
        and (
            _is_part(value, whole[name])
            if isinstance(value, Mapping) and isinstance(whole[name], Mapping)
            else value == whole[name]
        )
        for name, value in part.items()
    )


def _json_of(value: object) -> str:
    """Return statistics as JSON, decimals with all their digits.

    They have no exponent if they have few digits: delta-rs reads none in a DECIMAL.
    """
    if isinstance(value, Mapping):
        fields = (f"{json.dumps(name)}:{_json_of(each)}" for name, each in value.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(value, Decimal):
        is_short = value.is_zero() or abs(value.adjusted()) <= _MAX_PLAIN_DIGITS
        text = format(value, "f") if is_short else str(value)
        return text if "." in text or "E" in text else f"{text}.0"
    return json.dumps(value)


class DataFiles:
    """Reads and writes the files of the table. Thread-safe."""

    def __init__(self, store: Store, directory: str, schema: pa.Schema) -> None:
        """Return the files of a table; nothing is read yet.

        Args:
            store: the store of the table.
            directory: the table's directory, relative to the store's root.
            schema: the schema of the table's rows.
        """
        self.schema = schema
        self._store = store
        self._directory = directory

    def write(
        self,
        parts: Iterable[pa.Table],
        *,
        prefix: str = "part",
        is_small: bool = False,
        footer: Callable[[], Mapping[str, str]] = dict,
    ) -> DataFile:
        """Write rows into a new file. The file becomes part of the table when a version adds it.

        Args:
            parts: the rows.
            prefix: the prefix of the file's name.
            is_small: whether to write fast, for at most a few hundred rows.
            footer: called after the last row; returns key-value metadata for the footer.

        Raises:
            StorageError: the file was not written.
        """
        path = f"{prefix}-{uuid.uuid4().hex}.parquet"
        num_rows = 0
        smallest: str | None = None
        largest: str | None = None
        with self._store.stage(self._directory) as staged:
            how = _SMALL_FORMAT if is_small else _FORMAT
            with pq.ParquetWriter(
                staged.sink, self.schema, write_page_checksum=True, **how
            ) as writer:
                for part in parts:
                    writer.write_table(part, row_group_size=ROW_GROUP_ROWS)
                    num_rows += part.num_rows
                    ends = pc.min_max(part.column("group")).as_py()
                    smallest = ends["min"] if smallest is None else min(smallest, ends["min"])
                    largest = ends["max"] if largest is None else max(largest, ends["max"])
                if values := footer():
                    writer.add_key_value_metadata(dict(values))
            staged.seal()
            size_bytes = staged.size_bytes
            self._store.put_if_absent(f"{self._directory}/{path}", staged)
        longest = max(len(smallest or ""), len(largest or ""))
        if smallest is None or longest > _MAX_STATISTIC_CHARACTERS:
            return DataFile(path, size_bytes, num_rows)
        return DataFile(
            path, size_bytes, num_rows, {"group": smallest}, {"group": largest}, {"group": 0}
        )

    def rows_of(self, file: DataFile, group: str) -> pa.Table:
        """Return the rows of one group, by reading only the row groups that may hold it.

        Raises:
            StorageError: the file cannot be read, is damaged, or is missing.
        """
        wanted = text_scalar(group)
        parts = [
            part.filter(pc.equal(part.column("group"), wanted))
            for part in self.parts(file, group, group)
        ]
        return pa.concat_tables([pa.Table.from_batches([], self.schema), *parts])

    def parts(
        self,
        file: DataFile,
        first_group: str | None = None,
        last_group: str | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the row groups that may hold groups from ``first_group`` to ``last_group``.

        Raises:
            StorageError: the file cannot be read, is damaged, or is missing.
        """
        path = f"{self._directory}/{file.path}"
        try:
            data = pq.ParquetFile(self._open(file, path), page_checksum_verification=True)
            at_column = data.schema_arrow.get_field_index("group")
            for at in range(data.num_row_groups):
                statistics = data.metadata.row_group(at).column(at_column).statistics
                if not _may_hold(statistics, first_group, last_group):
                    continue
                part = data.read_row_group(at, columns=columns, use_threads=False)
                wanted = (
                    self.schema
                    if columns is None
                    else pa.schema([self.schema.field(name) for name in columns])
                )
                yield part.select(wanted.names).cast(wanted)
        except NotFoundError as error:
            raise self._damaged(f"{file.path} is missing") from error
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error

    def row_groups(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the row groups of a file, with the columns of the schema.

        Raises:
            StorageError: the file cannot be read, is damaged, or is missing.
        """
        path = f"{self._directory}/{file.path}"
        try:
            data = pq.ParquetFile(self._open(file, path), page_checksum_verification=True)
            for at in range(data.num_row_groups):
                part = data.read_row_group(at, columns=self.schema.names, use_threads=False)
                yield part.select(self.schema.names).cast(self.schema)
        except NotFoundError as error:
            raise self._damaged(f"{file.path} is missing") from error
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error

    def footer_value(self, file: DataFile, name: str) -> str | None:
        """Return a value of the key-value metadata in a file's footer; None if it has none.

        Raises:
            StorageError: the file cannot be read, is damaged, or is missing.
        """
        path = f"{self._directory}/{file.path}"
        try:
            metadata = pq.ParquetFile(self._open(file, path)).metadata.metadata or {}
        except NotFoundError as error:
            raise self._damaged(f"{file.path} is missing") from error
        except pa.ArrowException as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error
        found = metadata.get(name.encode())
        return None if found is None else str(found, "utf-8")

    def row_group_starts(self, file: DataFile) -> list[tuple[str, int]]:
        """Return the smallest group ("" if not known) and the row count of each row group."""
        found = []
        try:
            metadata = pq.ParquetFile(self._open(file, f"{self._directory}/{file.path}")).metadata
            at_column = self.schema.get_field_index("group")
            for at in range(metadata.num_row_groups):
                group = metadata.row_group(at)
                statistics = group.column(at_column).statistics
                is_known = statistics is not None and statistics.has_min_max
                found.append((str(statistics.min) if is_known else "", group.num_rows))
        except (pa.ArrowException, LookupError, ValueError, OSError) as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error
        return found

    def delete(self, file: DataFile) -> None:
        """Delete a file that no version has added."""
        self._store.delete(f"{self._directory}/{file.path}")

    def keeping(self) -> DataFiles:
        """Return the same files, of which each small one is read once, and kept in memory."""
        return _KeptFiles(self._store, self._directory, self.schema)

    def _open(self, file: DataFile, path: str) -> object:
        if self._store.is_mapped or file.size_bytes <= _READ_WHOLE_BYTES:
            return pa.BufferReader(self._store.open_buffer(path))
        return pa.PythonFile(RangedFile(file.size_bytes, partial(self._read_range, path)), mode="r")

    def _read_range(self, path: str, start: int, end: int) -> pa.Buffer:
        return self._store.read(path, start, end - start)

    def _damaged(self, problem: str) -> StorageError:
        return damaged_table_error(self._directory, problem)


class _KeptFiles(DataFiles):
    """Files whose rows are kept once they were read, if they are few."""

    def __init__(self, store: Store, directory: str, schema: pa.Schema) -> None:
        super().__init__(store, directory, schema)
        self._kept: dict[str, list[pa.Table]] = {}

    def parts(
        self,
        file: DataFile,
        first_group: str | None = None,
        last_group: str | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield row groups; all of a small file."""
        if not 0 <= file.num_rows <= _FEW_ROWS:
            yield from super().parts(file, first_group, last_group, columns)
            return
        kept = self._kept.get(file.path)
        if kept is None:
            kept = self._kept[file.path] = list(super().parts(file))
        for part in kept:
            yield part if columns is None else part.select(columns)


def _may_hold(statistics: Any, first_group: str | None, last_group: str | None) -> bool:
    """Return whether a row group may have groups in a range, by its statistics of the column."""
    if statistics is None or not statistics.has_min_max:
        return True
    is_before = first_group is not None and str(statistics.max) < first_group
    is_after = last_group is not None and str(statistics.min) > last_group
    return not (is_before or is_after)


def damaged_table_error(directory: str, problem: str) -> StorageError:
    """Return the error for a damaged table: ``problem`` completes "… is damaged: "."""
    return StorageError(f"{directory} is damaged: {problem}; {remedy(directory)}", path=directory)


def remedy(directory: str) -> str:
    """Return what to do about a damaged table: it is a topic's, or has the groups' offsets."""
    if is_topic_directory(directory):
        return "make its Delta log anew: spark-log table rebuild"
    return "to save what can be saved: spark-log groups repair"
