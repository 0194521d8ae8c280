"""The rows of a read that come from Parquet segments, by pyarrow's reader of data sets.

Several files are opened together: a group. Opening a file checks the checksum of its footer, since
pyarrow does not survive every damaged one. While pyarrow decodes one group in its threads, the next
one is opened in the background. So memory and open files are bounded however many files there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log import RepeatedValue, SegmentReader
from spark_log.storage import map_requests
from spark_log.threads import call_beside
from spark_log.topic_read.log_rows import LogRows
from spark_log.topic_read.plan import FilePart, PartitionRead
from spark_log.topic_read.timestamp_types import TypedPart, open_file, typed_parts

if TYPE_CHECKING:
    from pyarrow import dataset

_SAME: Final = ("topic", "partition", "timestampType")
"""Columns that are the same in a whole file, and not stored."""

_GROUP_FILES: Final = 32
_GROUP_BYTES: Final = 512 << 20

_FILES_AHEAD: Final = 2
_ROW_GROUPS_AHEAD: Final = 4
"""Files of which rows are decoded at once, and row groups of each: at least this many, and one for
each processor. pyarrow's own limits (4 and 16) hold twice the memory. Clearing its pages costs a
tenth of the processor time."""

_PartitionFile = tuple[PartitionRead, FilePart]


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """Reads rows of Parquet segments.

    Attributes:
        topic: the topic's name.
        schema: the columns that files can have, and those that are the same in a whole file.
        columns: names of the columns to return, in this order.
        where: the rows to return; None for all.
        needs_types: whether the column ``timestampType`` is needed.
        log_rows: makes rows of batches of the log, for files that leave values out.
        repeated_values: name and value of a column that is the same in a whole file → the column.
    """

    topic: str
    schema: pa.Schema
    columns: Sequence[str]
    where: dataset.Expression | None
    needs_types: bool
    log_rows: LogRows
    repeated_values: dict[tuple[str, object], RepeatedValue] = field(default_factory=dict)

    def read(self, reads: Sequence[PartitionRead]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files; those of one partition in offset order.

        Args:
            reads: the reads of partitions, in order.

        Raises:
            NotFoundError: a file does not exist any more.
            CorruptRecordError: a file is damaged; the error names it.
        """
        groups = _groups(_in_order(reads))
        group = next(groups, None)
        opened = None if group is None else self._open(group)
        while opened is not None:
            following = next(groups, None)
            ahead = None if following is None else call_beside(partial(self._open, following))
            yield from self._rows(opened)
            opened = None if ahead is None else ahead()

    def _open(self, group: Sequence[_PartitionFile]) -> list[_Opened]:
        store = group[0][0].directory.store
        return [part for parts in map_requests(store, self._open_file, group) for part in parts]

    def _open_file(self, file: _PartitionFile) -> list[_Opened]:
        """Open a file; return a part for each of its timestamp types, which are no column of it."""
        read, part = file
        reader = open_file(read.directory, part)
        parts = typed_parts(reader, part) if self.needs_types else [TypedPart(part, 0)]
        return [_Opened(read, each.part, reader, each.timestamp_type) for each in parts]

    def _rows(self, opened: Iterable[_Opened]) -> Iterator[pa.RecordBatch]:
        """Yield rows. Whole files that follow each other are read together."""
        # An expression does not tell its columns, but its text has their names.
        needs_values = "value" in self.columns or "value" in str(self.where)
        for kind, parts in groupby(
            opened, key=lambda each: (each.part.is_whole, each.reader.leaves_values_out)
        ):
            is_whole, leaves_out = kind
            if leaves_out and needs_values:
                for each in parts:
                    yield from self._from_log(each)
                continue
            if is_whole:
                yield from self._scan(list(parts), self.where)
                continue
            for each in parts:
                yield from self._scan([each], _all_of(self.where, *_offset_limits(each.part)))

    def _from_log(self, opened: _Opened) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that leaves values out: the log's reader gives them back."""
        low = opened.reader.base_offset if opened.part.low is None else opened.part.low
        batches = opened.reader.read(low, opened.part.high, columns=self.log_rows.stored_columns)
        rows = (each for each in batches if not each.is_control)
        yield from self.log_rows.of(opened.read.partition, rows)
        opened.reader.forget()

    def _scan(
        self, opened: list[_Opened], where: dataset.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        from pyarrow import dataset  # late: most clients start without it

        file_format = dataset.ParquetFileFormat()
        stored = [name for name in self.columns if name not in _SAME]
        try:
            fragments = [each.fragment(file_format, self.topic) for each in opened]
            scanner = dataset.FileSystemDataset(fragments, self.schema, file_format).scanner(
                columns=stored or ["offset"],
                filter=where,
                fragment_readahead=_FILES_AHEAD,
                batch_readahead=max(_ROW_GROUPS_AHEAD, pa.cpu_count()),
                fragment_scan_options=dataset.ParquetFragmentScanOptions(
                    page_checksum_verification=True
                ),
            )
            for tagged in scanner.scan_batches():
                rows = tagged.record_batch
                if rows.num_rows:
                    same = dataset.get_partition_keys(tagged.fragment.partition_expression)
                    yield self._with_same(rows, same)
        except (pa.ArrowException, OSError) as error:
            raise _damage(opened, error) from error
        finally:
            for each in opened:
                each.reader.forget()

    def _with_same(self, rows: pa.RecordBatch, same: Mapping[str, object]) -> pa.RecordBatch:
        """Return rows of one file, with the columns that are the same in it."""
        arrays = [
            self._repeated(name, same[name]).repeated(rows.num_rows)
            if name in _SAME
            else rows.column(name)
            for name in self.columns
        ]
        schema = pa.schema([self.schema.field(name) for name in self.columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _repeated(self, name: str, value: object) -> RepeatedValue:
        found = self.repeated_values.get((name, value))
        if found is None:
            found = RepeatedValue(pa.scalar(value, self.schema.field(name).type))
            self.repeated_values[name, value] = found
        return found


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open file, or a part of one, whose rows have one timestamp type."""

    read: PartitionRead
    part: FilePart
    reader: SegmentReader
    timestamp_type: int

    def fragment(
        self, file_format: dataset.ParquetFileFormat, topic: str
    ) -> dataset.ParquetFileFragment:
        """Return the file as a part of a data set, with the columns that are the same in it."""
        from pyarrow import dataset

        same: dict[str, pa.Scalar] = {
            "topic": pa.scalar(topic),
            "partition": pa.scalar(self.read.partition, pa.int32()),
            "timestampType": pa.scalar(self.timestamp_type, pa.int32()),
        }
        known = _all_of(*(dataset.field(name) == value for name, value in same.items()))
        return file_format.make_fragment(self.reader.to_arrow(), partition_expression=known)


def _in_order(reads: Sequence[PartitionRead]) -> list[_PartitionFile]:
    """Return the files in an order in which files that are read whole follow each other.

    First the files of which only the end is read, then the others, then those of which only the
    begin is read. So files of one partition keep their order.
    """
    files = [(read, part) for read in reads for part in read.files]
    return sorted(files, key=lambda file: _rank(file[1]))


def _rank(part: FilePart) -> int:
    if part.low is not None:
        return 0
    return 1 if part.high is None else 2


def _groups(files: Sequence[_PartitionFile]) -> Iterator[list[_PartitionFile]]:
    group: list[_PartitionFile] = []
    size_bytes = 0
    for file in files:
        group.append(file)
        size_bytes += file[1].size_bytes
        if len(group) >= _GROUP_FILES or size_bytes >= _GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _offset_limits(part: FilePart) -> list[dataset.Expression]:
    from pyarrow import dataset

    offset = dataset.field("offset")
    limits = []
    if part.low is not None:
        limits.append(offset >= part.low)
    if part.high is not None:
        limits.append(offset < part.high)
    return limits


def _all_of(*conditions: dataset.Expression | None) -> dataset.Expression | None:
    """Return the conjunction of conditions; None if there is none."""
    joined = None
    for each in conditions:
        if each is not None:
            joined = each if joined is None else joined & each
    return joined


def _damage(opened: Sequence[_Opened], error: Exception) -> Exception:
    """Return the error that names the damaged file: the log's reader finds the place."""
    for each in opened:
        try:
            for _ in each.reader.read(each.reader.base_offset):
                pass
        except CorruptRecordError as found:
            return found
    paths = ", ".join(each.reader.path for each in opened)
    return CorruptRecordError(
        f"one of {paths} cannot be read as a table ({error}), but as a log it can; to see which: "
        f"spark-log verify",
        path=opened[0].reader.path,
    )
