"""Verification of one segment file and its indexes: finds all problems, not only the first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.segment import (
    IndexBuilder,
    OffsetIndex,
    SegmentReader,
    SegmentSummary,
    TimeIndex,
    TimestampOffset,
)
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.log.verify.index_owners import IndexOwners
from spark_log.log.verify.key_index import KeyIndexCheck
from spark_log.record import (
    NO_TIMESTAMP,
    BatchHeader,
    ControlRecordType,
    latest_delete_horizon_us,
    parse_leader_change,
)

_FILE_BEGIN = b"ARROW1\0\0"
_PARQUET_BEGIN = b"PAR1"


class SegmentCheck:
    """Checks one segment. Memory: the largest batch, and 100 bytes for each batch.

    Attributes:
        end_offset: the offset after the segment's last offset; None if it is not known.
        record_count: number of records in the sound batches.
        is_sound: whether no problem was found in the segment file.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        name: SegmentName,
        size_bytes: int,
        *,
        index_interval_bytes: int,
        is_settled: bool,
        on_headers: Callable[[tuple[BatchHeader, ...]], None],
        index_owners: IndexOwners,
        repair: bool,
    ) -> None:
        """Prepare the check; touches nothing.

        Args:
            directory: the partition's directory.
            name: the segment's name.
            size_bytes: the size of the file in a listing.
            index_interval_bytes: the topic's ``index.interval.bytes``, for rebuilt indexes.
            is_settled: whether the segment is so old that its writer must have put the indexes.
            on_headers: called with the headers of each sound Arrow batch, in order.
            index_owners: finds the segment that an index was made for, if it does not fit this one.
            repair: whether to rebuild damaged and missing indexes.
        """
        self._directory = directory
        self._name = name
        self._size_bytes = size_bytes
        self._index_interval_bytes = index_interval_bytes
        self._is_settled = is_settled
        self._on_headers = on_headers
        self._index_owners = index_owners
        self._repair = repair
        self._path = directory.file_path(name.file_name)
        self._index_path = directory.file_path(name.index)
        self._time_index_path = directory.file_path(name.time_index)
        self._keys = KeyIndexCheck(directory, name)
        self._positions: list[int] = []
        self._bases: list[int] = []
        self._latest: list[TimestampOffset | None] = []
        self._least_us: int | None = None
        self._largest_us: int | None = None
        self._append_id = ""
        self._delete_horizon_us = NO_TIMESTAMP
        self.end_offset: int | None = None
        self.record_count = 0
        self.is_sound = True

    def findings(self, on_progress: Callable[[int], None]) -> Iterator[LogFinding]:
        """Yield problems as they are found.

        Args:
            on_progress: called with numbers of bytes, each checked since the previous call.

        Raises:
            NotFoundError: the file was deleted; discard the findings.
            StorageError: the storage does not answer.
        """
        try:
            reader = self._directory.open(self._name)
        except CorruptRecordError as error:
            yield self._damaged(error.message)
            on_progress(self._size_bytes)
            return
        self._append_id = reader.append_id
        yield from self._check_begin(reader)
        seen_bytes = 0
        for finding, position in self._check_batches(reader):
            if finding is not None:
                yield finding
            on_progress(position - seen_bytes)
            seen_bytes = position
        on_progress(self._size_bytes - seen_bytes)
        with suppress(CorruptRecordError):
            self.end_offset = reader.end_offset
        if self.is_sound and not self._name.is_parquet:
            yield from self._check_indexes(reader)
        if self.is_sound:
            yield from self._keys.findings(reader, is_settled=self._is_settled, repair=self._repair)

    def summary(self) -> SegmentSummary | None:
        """Return the segment's summary for a snapshot; None if the file is not sound."""
        if not self.is_sound or self.end_offset is None:
            return None
        return SegmentSummary(
            name=self._name,
            end_offset=self.end_offset,
            record_count=self.record_count,
            size_bytes=self._size_bytes,
            min_timestamp_us=NO_TIMESTAMP if self._least_us is None else self._least_us,
            max_timestamp_us=NO_TIMESTAMP if self._largest_us is None else self._largest_us,
            append_id=self._append_id,
            delete_horizon_us=self._delete_horizon_us,
        )

    # --- the file --------------------------------------------------------------------------------

    def _check_begin(self, reader: SegmentReader) -> Iterator[LogFinding]:
        """Check the beginning of the file, which only other Arrow readers use.

        The schema is stored twice: at the beginning and in the footer.
        """
        if reader.size_bytes != self._size_bytes:
            yield self._damaged(
                f"has {self._size_bytes} bytes, but its footer is for {reader.size_bytes}. Restore "
                f"the file from a copy"
            )
        if self._name.is_parquet:
            begin = self._directory.store.read(self._path, 0, len(_PARQUET_BEGIN)).to_pybytes()
            if begin != _PARQUET_BEGIN:
                yield self._damaged_for_others("does not begin like a Parquet file")
            return
        begin = self._directory.store.read(self._path, 0, reader.position(0))
        problem = None
        try:
            schema = ipc.open_stream(begin.slice(len(_FILE_BEGIN))).schema
            if begin.slice(0, len(_FILE_BEGIN)).to_pybytes() != _FILE_BEGIN:
                problem = "does not begin like an Arrow file"
            elif not schema.equals(reader.schema, check_metadata=True):
                problem = "its schema at the beginning differs from the schema in its footer"
        except (OSError, ValueError, pa.ArrowException) as error:
            problem = f"its schema at the beginning is damaged: {error}"
        if problem is not None:
            yield self._damaged_for_others(problem)

    def _check_batches(self, reader: SegmentReader) -> Iterator[tuple[LogFinding | None, int]]:
        """Yield the finding of each Arrow batch, or None, and its end position in the file."""
        previous: BatchHeader | None = None
        for ordinal in reader.in_order():
            finding = None
            try:
                headers, records = reader.read_batch(ordinal)
                reader.check_follows(previous, headers[0], ordinal)
                self._record_batch(reader.position(ordinal), headers, records)
                self._on_headers(headers)
                self._keys.add(records, headers)
                previous = headers[-1]
                problem = _marker_problem(headers, records) or _barrier_problem(headers, records)
                finding = None if problem is None else self._damaged(problem)
                others = reader.problem_for_others(ordinal) if finding is None else None
                if others is not None:
                    finding = self._damaged(
                        f"the row group at position {reader.position(ordinal)}: {others}. Restore "
                        f"the file from a copy"
                    )
            except CorruptRecordError as error:
                finding, previous = self._damaged(error.message), None
            yield finding, reader.block(ordinal).end
        if previous is not None and self._name.last_offset is None:
            self.end_offset = reader.base_offset + previous.last_offset_delta + 1

    def _record_batch(
        self, position: int, headers: tuple[BatchHeader, ...], records: pa.RecordBatch
    ) -> None:
        """Record the values that indexes and snapshots must contain for this batch."""
        self._positions.append(position)
        self._bases.append(headers[0].base_offset_delta)
        horizon_us = latest_delete_horizon_us(headers)
        self._delete_horizon_us = max(self._delete_horizon_us, horizon_us)
        latest = self._latest[-1] if self._latest else None
        if records.num_rows:
            least_us = pc.min(records.column("timestamp").cast(pa.int64())).as_py()
            self._least_us = least_us if self._least_us is None else min(least_us, self._least_us)
        for header in headers:
            if not header.record_count:
                continue
            self.record_count += header.record_count
            time_us = header.max_timestamp_us
            self._largest_us = (
                time_us if self._largest_us is None else max(time_us, self._largest_us)
            )
            if not header.is_control and (
                latest is None or header.max_timestamp_us > latest.timestamp_us
            ):
                offset = self._name.base_offset + header.base_offset_delta
                latest = TimestampOffset(header.max_timestamp_us, offset)
        self._latest.append(latest)

    # --- the indexes -----------------------------------------------------------------------------

    def _check_indexes(self, reader: SegmentReader) -> Iterator[LogFinding]:
        offset_data, time_data = map(self._content, (self._index_path, self._time_index_path))
        offset_problem = self._offset_index_problem(offset_data, reader.append_id)
        if offset_data is not None and offset_problem is not None:
            other = self._index_owners.exchanged(self._name, offset_data)
            if other is not None:  # its indexes are the evidence: they are not repaired
                yield self._damaged(
                    f"its index was made for the append that {other.file_name} holds: the files "
                    f"of the two were exchanged. Give each its own name again"
                )
                return
        time_problem = self._time_index_problem(time_data, offset_data)
        found = [
            (self._index_path, offset_data, offset_problem),
            (self._time_index_path, time_data, time_problem or offset_problem),
        ]
        # One damaged index makes the other unusable: both are rebuilt.
        files = self._rebuilt(reader)
        is_missed = all(files) and self._is_settled
        wrong = [
            LogFinding(
                path,
                LogFindingKind.MISSING_INDEX if data is None else LogFindingKind.DAMAGED_INDEX,
                LogSeverity.NOTE if data is None else LogSeverity.WARNING,
                "does not exist: readers work without it"
                if data is None
                else f"{problem}. Readers work without it",
            )
            for path, data, problem in found
            if (is_missed if data is None else problem)
        ]
        if wrong and self._repair:
            repaired = self._put_indexes(files)
            wrong = [replace(each, repaired=repaired) for each in wrong]
        yield from wrong

    def _offset_index_problem(self, data: pa.Buffer | None, append_id: str) -> str | None:
        if data is None:
            return None
        try:
            index = OffsetIndex.from_bytes(self._name.base_offset, data, append_id)
        except ValueError as error:
            return str(error)
        for entry in index.entries():
            at = bisect_left(self._positions, entry.position)
            if self._positions[at : at + 1] != [entry.position]:
                return f"has an entry for position {entry.position}, where no record batch begins"
            if self._name.base_offset + self._bases[at] != entry.offset:
                return f"has a wrong offset for the record batch at position {entry.position}"
        return None

    def _time_index_problem(
        self, data: pa.Buffer | None, offset_data: pa.Buffer | None
    ) -> str | None:
        if data is None:
            return None
        if offset_data is None:
            return "the offset index that belongs to it does not exist"
        try:
            index = TimeIndex.from_bytes(self._name.base_offset, data, offset_data)
            places = OffsetIndex.from_bytes(self._name.base_offset, offset_data, None).positions()
        except ValueError as error:
            return str(error)
        before = [self._latest[at - 1] for at in np.searchsorted(self._positions, places) if at > 0]
        steps = [None, *before]
        expected = [after for last, after in pairwise(steps) if after != last]
        return None if list(index.entries()) == expected else "its times differ from the records'"

    def _rebuilt(self, reader: SegmentReader) -> tuple[bytes, bytes]:
        builder = IndexBuilder(self._index_interval_bytes)
        for position, headers in reader.all_headers():
            builder.add(position, headers)
        return builder.files(reader.append_id)

    def _put_indexes(self, files: tuple[bytes, bytes]) -> bool:
        """Write both indexes, or delete them if the segment is too small for an index."""
        store = self._directory.store
        paths = (self._index_path, self._time_index_path)
        try:
            for path, content in zip(paths, files, strict=True):
                if content:
                    store.put(path, content, sync=False)
                else:
                    store.delete(path)
        except StorageError as error:
            self._directory.suppressed.add("repair", self._directory.path, error)
            return False
        return True

    def _content(self, path: str) -> pa.Buffer | None:
        try:
            return self._directory.store.open_buffer(path)
        except NotFoundError:
            return None

    def _damaged_for_others(self, problem: str) -> LogFinding:
        what = "Parquet" if self._name.is_parquet else "Arrow"
        message = (
            f"{problem}. Only other {what} readers use this part; restore the file from a copy"
        )
        return LogFinding(self._path, LogFindingKind.DAMAGED_SEGMENT, LogSeverity.WARNING, message)

    def _damaged(self, message: str) -> LogFinding:
        self.is_sound = False
        reason = message.removeprefix(self._path).lstrip(", :")
        return LogFinding(self._path, LogFindingKind.DAMAGED_SEGMENT, LogSeverity.ERROR, reason)


def _marker_problem(headers: tuple[BatchHeader, ...], records: pa.RecordBatch) -> str | None:
    """Return the problem of an Arrow batch's transaction markers; None if all are right.

    The header and the key of a marker both have the outcome of the transaction. A marker without a
    record was compacted.
    """
    row = 0
    for header in headers:
        if header.marker is not None and header.record_count:
            keys = records.column("key").slice(row, header.record_count)
            types = [ControlRecordType.of_key(key.as_py()) for key in keys]
            if types != [header.marker]:
                names = ", ".join("no marker" if each is None else each.name for each in types)
                return (
                    f"the header of the control batch {header.base_offset_delta} offsets into the "
                    f"segment says {header.marker.name}, its record says {names}. Restore the file "
                    f"from a copy"
                )
        row += header.record_count
    return None


def _barrier_problem(headers: tuple[BatchHeader, ...], records: pa.RecordBatch) -> str | None:
    """Return the problem of an Arrow batch's barriers; None if all are right."""
    row = 0
    for header in headers:
        if header.is_control and header.marker is None and header.record_count:
            record = records.slice(row, 1)
            problem = None
            try:
                change = parse_leader_change(
                    record.column("key")[0].as_py(), record.column("value")[0].as_py()
                )
                if change is not None and change.leader_epoch != header.leader_epoch:
                    problem = f"is for leader epoch {change.leader_epoch}"
            except ValueError as error:
                problem = str(error)
            if problem is not None:
                return (
                    f"the barrier {header.base_offset_delta} offsets into the segment is of leader "
                    f"epoch {header.leader_epoch}, and its record {problem}. Restore the file from "
                    f"a copy"
                )
        row += header.record_count
    return None
