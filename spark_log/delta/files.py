"""Data files of the offsets table: Parquet, with the least and the greatest group in the log.

New commits are small files, a group's rows wherever they happen to be. Compacted files are sorted
by group, so that their statistics, and those of their row groups, tell where a group is not.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.errors import NotFoundError, StorageError
from spark_log.record.arrays import text_scalar
from spark_log.storage import Store

ROW_GROUP_ROWS = 16_384
_MAX_STATISTIC_CHARACTERS = 1000
_READ_WHOLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table.

    Attributes:
        path: relative to the table.
        size_bytes: its length.
        num_rows: how many rows it has; -1 where another program did not say.
        min_group: least and greatest group in it; None where that is not known.
    """

    path: str
    size_bytes: int
    num_rows: int
    min_group: str | None
    max_group: str | None

    def may_hold(self, group: str) -> bool:
        """Whether rows of a group may be in it."""
        return (self.min_group is None or self.min_group <= group) and (
            self.max_group is None or group <= self.max_group
        )

    def to_add(self, time_ms: int, *, is_new: bool = True) -> dict[str, object]:
        """Return the action that adds it; ``is_new``: its rows were not in the table before."""
        stats: dict[str, Any] = {"numRecords": self.num_rows}
        if self.min_group is not None and self.max_group is not None:
            stats["minValues"] = {"group": self.min_group}
            stats["maxValues"] = {"group": self.max_group}
            stats["nullCount"] = {"group": 0}
        return {
            "add": {
                "path": self.path,
                "partitionValues": {},
                "size": self.size_bytes,
                "modificationTime": time_ms,
                "dataChange": is_new,
                "stats": json.dumps(stats, separators=(",", ":")),
            }
        }

    def to_remove(self, time_ms: int, *, is_change: bool) -> dict[str, object]:
        """Return the action that removes it; ``is_change``: some of its rows are gone with it."""
        return {
            "remove": {
                "path": self.path,
                "deletionTimestamp": time_ms,
                "dataChange": is_change,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": self.size_bytes,
            }
        }

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> DataFile:
        """Read the action that adds it."""
        stats = json.loads(action.get("stats") or "{}")
        return cls(
            action["path"],
            action["size"],
            stats.get("numRecords", -1),
            (stats.get("minValues") or {}).get("group"),
            (stats.get("maxValues") or {}).get("group"),
        )


class DataFiles:
    """Reads and writes the files of the table. Safe to use from any thread."""

    def __init__(self, store: Store, directory: str, schema: pa.Schema) -> None:
        """Args: directory: the table's; schema: of its rows."""
        self.schema = schema
        self._store = store
        self._directory = directory

    def write(
        self,
        parts: Iterable[pa.Table],
        *,
        prefix: str = "part",
        footer: Callable[[], Mapping[str, str]] = dict,
    ) -> DataFile:
        """Write rows into a new file, which belongs to the table once a version adds it.

        Args:
            parts: the rows.
            prefix: how its name begins.
            footer: returns, once all rows are written, what its footer is to keep.

        Raises:
            StorageError: nothing that counts was written.
        """
        path = f"{prefix}-{uuid.uuid4().hex}.parquet"
        num_rows, least, greatest = 0, None, None
        with self._store.stage(self._directory) as staged:
            with pq.ParquetWriter(
                staged.sink, self.schema, compression="zstd", write_page_checksum=True
            ) as writer:
                for part in parts:
                    writer.write_table(part, row_group_size=ROW_GROUP_ROWS)
                    num_rows += part.num_rows
                    ends = pc.min_max(part.column("group")).as_py()
                    least = ends["min"] if least is None else min(least, ends["min"])
                    greatest = ends["max"] if greatest is None else max(greatest, ends["max"])
                if values := footer():
                    writer.add_key_value_metadata(dict(values))
            staged.seal()
            size_bytes = staged.size_bytes
            self._store.put_if_absent(f"{self._directory}/{path}", staged)
        if max(len(least or ""), len(greatest or "")) > _MAX_STATISTIC_CHARACTERS:
            least = greatest = None
        return DataFile(path, size_bytes, num_rows, least, greatest)

    def rows_of(self, file: DataFile, group: str) -> pa.Table:
        """Return the rows of one group, reading no more of the file than has to be.

        Raises:
            StorageError: it cannot be read, is damaged, or is gone.
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
        least: str | None = None,
        greatest: str | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the row groups that may hold groups from ``least`` to ``greatest``.

        Raises:
            StorageError: see `rows_of`.
        """
        path = f"{self._directory}/{file.path}"
        try:
            data = pq.ParquetFile(self._opened(file, path), page_checksum_verification=True)
            at_column = data.schema_arrow.get_field_index("group")
            for at in range(data.num_row_groups):
                found = data.metadata.row_group(at).column(at_column).statistics
                if found is not None and found.has_min_max:
                    if least is not None and str(found.max) < least:
                        continue
                    if greatest is not None and str(found.min) > greatest:
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

    def footer_value(self, file: DataFile, name: str) -> str | None:
        """Return what the footer of a file keeps under a name; None for nothing.

        Raises:
            StorageError: see `rows_of`.
        """
        path = f"{self._directory}/{file.path}"
        try:
            metadata = pq.ParquetFile(self._opened(file, path)).metadata.metadata or {}
        except NotFoundError as error:
            raise self._damaged(f"{file.path} is missing") from error
        except pa.ArrowException as error:
            raise self._damaged(f"{file.path} cannot be read ({error})") from error
        found = metadata.get(name.encode())
        return None if found is None else str(found, "utf-8")

    def row_group_begins(self, file: DataFile) -> list[tuple[str, int]]:
        """Return the least group of each row group, "" where it is not known, and its rows."""
        found = []
        try:
            metadata = pq.ParquetFile(self._opened(file, f"{self._directory}/{file.path}")).metadata
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
        """Delete a file that no version names."""
        self._store.delete(f"{self._directory}/{file.path}")

    def _opened(self, file: DataFile, path: str) -> object:
        if self._store.is_mapped or file.size_bytes <= _READ_WHOLE_BYTES:
            return pa.BufferReader(self._store.open_buffer(path))
        return pa.PythonFile(_RangedFile(self._store, path, file.size_bytes), mode="r")

    def _damaged(self, what: str) -> StorageError:
        return StorageError(
            f"{self._directory} is damaged: {what}; see what can be saved: spark-log groups repair",
            path=self._directory,
        )


class _RangedFile(io.RawIOBase):
    """A remote file of which only the ranges that are asked for are read."""

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        self._store, self._path, self._size_bytes = store, path, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data: bytes = self._store.read(self._path, self._position, length).to_pybytes()
        self._position += len(data)
        return data
