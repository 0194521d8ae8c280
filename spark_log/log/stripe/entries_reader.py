"""The entries of one partition in an object, read as a segment of this partition is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment import IsAborted, LogBatch, SegmentReader, cut_batches
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.record import BatchHeader, SmallBatch, header_array, times_us_of
from spark_log.util import lazy

_READER_BYTES = 1_024
"""Approximate memory of a reader, without the object, which others share."""


class EntriesReader(SegmentReader):
    """Consecutive entries of one partition in an object of a stripe.

    A partition's entries in one object were put together, as a segment is. So whatever reads the
    segments of a log reads these, too. Each "Arrow batch" of this reader is the part of one of the
    object that belongs to the partition.

    Attributes:
        path: the object's path, relative to the store's root.
    """

    def __init__(
        self,
        found: StripeObject,
        entries: range,
        base_offset: int,
        *,
        size_bytes: int,
        check_not_freed: Callable[[int], None],
    ) -> None:
        """Read nothing yet.

        Args:
            found: the object.
            entries: numbers of the entries, all of one partition.
            base_offset: the first record's offset.
            size_bytes: approximate size of these entries, as a listing shows it.
            check_not_freed: function that is called with the object's number when its file is
                damaged. It raises a `NotFoundError` if the number was freed: another file may have
                it now.
        """
        self._entries_bytes = size_bytes
        self._check_not_freed = check_not_freed
        self.path = found.path
        self.small = None
        self._name = SegmentName(base_offset)
        self._object = found
        headers = found.directory.headers[entries.start : entries.stop]
        self._first_delta = headers[0].base_offset_delta
        self._origin = base_offset - self._first_delta
        self._end = self._origin + headers[-1].last_offset_delta + 1
        self._runs = found.runs(entries)

    def __repr__(self) -> str:
        return f"<EntriesReader path={self.path!r} offsets={self.base_offset} to {self._end}>"

    # --- what the directory of the object tells ---------------------------------------------------

    @property
    def batch_count(self) -> int:
        """Number of Arrow batches of the object that have entries of the partition."""
        return len(self._runs)

    @property
    def append_id(self) -> str:
        """Random id of the object, from its writer (docs/adr/0003)."""
        return self._object.append_id

    @property
    def compaction_id(self) -> str:
        """Empty: no compaction writes objects."""
        return ""

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self._end

    @property
    def has_gaps(self) -> bool:
        """Whether some offsets are missing: never."""
        return False

    @property
    def has_header_checks(self) -> bool:
        """Whether the headers have a check: those of an object always have one."""
        return True

    @property
    def leaves_values_out(self) -> bool:
        """Whether values may be missing in the file: never."""
        return False

    @property
    def left_out(self) -> None:
        """None: an object has all values."""
        return

    @property
    def schema(self) -> pa.Schema:
        """The object's schema, with its metadata."""
        return self._object.schema

    @property
    def size_bytes(self) -> int:
        """Approximate size of the entries: a part of the object, which other partitions share."""
        return self._entries_bytes

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that this reader holds besides the object."""
        return _READER_BYTES

    @property
    def is_in_memory(self) -> bool:
        """Whether reading makes no request: the object is mapped, or was read whole on opening."""
        return self._object.is_in_memory

    @lazy
    def _headers(self) -> tuple[tuple[BatchHeader, ...], ...]:
        return tuple(
            tuple(
                replace(
                    header,
                    base_offset_delta=header.base_offset_delta - self._first_delta,
                    last_offset_delta=header.last_offset_delta - self._first_delta,
                )
                for header in self._object.directory.headers[run.start : run.stop]
            )
            for run in self._runs
        )

    def headers(self, ordinal: int) -> tuple[BatchHeader, ...]:
        """Return the batch headers of the ``ordinal``-th part, relative to this base offset."""
        return self._headers[ordinal]

    def all_headers(self) -> Iterator[tuple[int, tuple[BatchHeader, ...]]]:
        """Yield the object's byte position and the headers of every part."""
        for ordinal in range(self.batch_count):
            yield self.position(ordinal), self.headers(ordinal)

    def header_array(self) -> np.ndarray:
        """Return all batch headers as an array of `HEADER_DTYPE`."""
        return header_array(b"".join(header.pack() for part in self._headers for header in part))

    def in_order(self) -> Iterator[int]:
        """Yield all ordinals, to call `read_batch` of each."""
        return iter(range(self.batch_count))

    def position(self, ordinal: int) -> int:
        """Return the byte position, in the object, of the Arrow batch that has the part."""
        return int(self._object.block(self._runs[ordinal]).position)

    def compression(self, ordinal: int) -> str:
        """Return the compression of the Arrow batch that has the part: none, lz4 or zstd."""
        return self._object.compression(self._runs[ordinal])

    # --- records ----------------------------------------------------------------------------------

    def read_batch(
        self, ordinal: int, *, check_crcs: bool = True
    ) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
        """Return headers and rows of the ``ordinal``-th part.

        Raises:
            CorruptRecordError: the batch is damaged; has file and position.
        """
        return self.headers(ordinal), self._read(self._runs[ordinal], check_crcs=check_crcs)

    def read_keys(self, ordinal: int) -> tuple[tuple[BatchHeader, ...], pa.Array]:
        """Return headers and keys of the ``ordinal``-th part, control records included."""
        headers, records = self.read_batch(ordinal)
        return headers, records.column("key")

    def read(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        is_aborted: IsAborted | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the records from ``start_offset`` to before ``end_offset``, batch by batch.

        The arguments are those of `SegmentReader.read`. The object keeps the Arrow batch that was
        decoded last, since each partition's entries are a part of it.

        Raises:
            CorruptRecordError: a batch is damaged; has file and position.
            NotFoundError: the object was deleted meanwhile, and is not in memory.
        """
        between = start_offset, end_offset, is_aborted
        for ordinal, run in enumerate(self._runs):
            headers = self._object.directory.headers
            first_offset = self._origin + headers[run.start].base_offset_delta
            behind = self._origin + headers[run.stop - 1].last_offset_delta + 1
            if behind <= start_offset:
                continue
            if end_offset is not None and first_offset >= end_offset:
                return
            is_inside = start_offset <= first_offset and (
                end_offset is None or behind <= end_offset
            )
            small = (
                self._small(run, check_crcs=check_crcs) if columns is None and is_inside else None
            )
            if small is not None:
                yield from self._whole(run, small, is_aborted)
                continue
            records = self._read(run, check_crcs=check_crcs)
            if columns is not None:
                records = records.select(list(columns))
            yield from self._cut(ordinal, self.headers(ordinal), records, *between)

    def _whole(
        self, run: range, small: Sequence[SmallBatch], is_aborted: IsAborted | None
    ) -> Iterator[LogBatch]:
        """Yield a batch for each entry of a run."""
        headers = self._object.directory.headers[run.start : run.stop]
        for header, content in zip(headers, small, strict=True):
            offset = self._origin + header.base_offset_delta
            yield LogBatch(
                offset,
                content,
                header.timestamp_type,
                header.leader_epoch,
                header.is_control,
                self.base_offset,
                len(content.content),
                is_aborted is not None and is_aborted(header, offset),
            )

    def offset_for_time(self, timestamp_us: int, start_offset: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        Args:
            timestamp_us: microseconds since the epoch.
            start_offset: records before it are ignored.

        Raises:
            CorruptRecordError: a batch is damaged; has file and position.
        """
        for batch in self.read(start_offset, columns=["timestamp"]):
            times_us = times_us_of(batch.records)
            hits = np.flatnonzero(times_us >= timestamp_us)
            if hits.size and not batch.is_control:
                return batch.base_offset + int(hits[0]), int(times_us[hits[0]])
        return None

    @lazy
    def min_timestamp_us(self) -> int:
        """The smallest timestamp of all records. Reads the timestamps of all of them."""
        return min(
            int(times_us_of(batch.records).min())
            for batch in self.read(self.base_offset, columns=["timestamp"])
        )

    def ranges_in_time(self, times_us: tuple[int, int]) -> None:
        """Return None: an object has no statistics of its records' times."""

    def forget(self) -> None:
        """Do nothing: the object is shared by the readers of all partitions."""

    def _read(self, run: range, *, check_crcs: bool) -> pa.RecordBatch:
        with self._checking_not_freed():
            return self._object.rows(run, check_crcs=check_crcs)

    def _small(self, run: range, *, check_crcs: bool) -> Sequence[SmallBatch] | None:
        with self._checking_not_freed():
            return self._object.small(run, check_crcs=check_crcs)

    @contextmanager
    def _checking_not_freed(self) -> Iterator[None]:
        """Look whether the object was freed when it is damaged: another file may have its name."""
        try:
            yield
        except CorruptRecordError:
            if not self.is_in_memory:
                self._check_not_freed(self._object.number)
            raise

    def _cut(
        self,
        ordinal: int,
        headers: Sequence[BatchHeader],
        records: pa.RecordBatch | SmallBatch,
        start_offset: int,
        end_offset: int | None,
        is_aborted: IsAborted | None = None,
    ) -> Iterator[LogBatch]:
        assert isinstance(records, pa.RecordBatch)
        return cut_batches(
            headers,
            records,
            segment_base_offset=self.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            stored_bytes=int(records.nbytes),
            is_aborted=is_aborted,
        )
