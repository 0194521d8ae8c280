"""An object of a stripe: an immutable Arrow file with batches of many partitions.

On storage: ``<number>.stripe``, a file of `SegmentWriter.write_entries`. Its last Arrow batch has
no rows; its metadata has the directory (`record.entry_directory`). The offsets of the records are
not in the file: they follow from the objects before it. A put makes it visible whole or not at all,
so a crash leaves a complete object or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment import (
    ArrowBatches,
    corrupt_segment,
    mapped_segment_file,
    open_segment_file,
)
from spark_log.record import (
    ENTRIES_KEY,
    FORMAT_VERSION,
    RECORD_SCHEMA,
    STRIPE_KEY,
    BatchHeader,
    Block,
    EntryDirectory,
    SmallBatch,
    decode_entries,
    small_batches,
)
from spark_log.storage import Store

_SMALL_BYTES = 700
"""Approximate memory of a `SmallBatch` without its records."""

_SMALL_ROWS = 16
"""Mean number of rows of an entry up to which entries are taken apart together: that is faster than
to cut the columns of each of them out of Arrow's arrays."""

_FEW_ENTRIES = 16
"""Number of entries of a partition in an object from which on their rows are read together."""


class _Decoded:
    """An Arrow batch that was decoded.

    Attributes:
        entries: numbers of its entries.
        is_checked: whether the checksums of its batches were checked.
        records: its rows.
        small: the records of each entry; None for one that is not small. Empty if few are.
        memory_bytes: approximate memory that it holds.
    """

    __slots__ = ("entries", "is_checked", "memory_bytes", "records", "small")

    def __init__(
        self,
        entries: range,
        is_checked: bool,
        records: pa.RecordBatch,
        small: Sequence[SmallBatch | None],
    ) -> None:
        self.entries, self.is_checked = entries, is_checked
        self.records, self.small = records, small
        self.memory_bytes = (2 if small else 1) * int(records.nbytes) + _SMALL_BYTES * len(small)

    def holds(self, run: range) -> bool:
        """Return whether entries of one Arrow batch are in this one."""
        return self.entries.start <= run.start < self.entries.stop


class StripeObject:
    """An open object of a stripe: its directory, and its records on demand.

    Opening it maps a local file; on an object store it reads the end of the file by one request,
    which is all of a small object.

    Attributes:
        number: its number in the stripe.
        path: the file's path, relative to the store's root.
        directory: the entries.
        append_id: random id of this file, from its writer (docs/adr/0003).
    """

    def __init__(
        self,
        store: Store,
        path: str,
        number: int,
        *,
        topic_id: str,
        stripe: int,
        data: pa.Buffer | None = None,
    ) -> None:
        """Open an object.

        Args:
            store: the store that holds the object.
            path: the file's path, relative to the store's root.
            number: its number in the stripe.
            topic_id: the topic's id; the file must have the same.
            stripe: number of the stripe; the file must have the same.
            data: the file's bytes, if they are in memory; None reads the file.

        Raises:
            NotFoundError: the file does not exist.
            CorruptRecordError: the file is not an object of this stripe, or its directory is
                damaged.
        """
        self.number = number
        self.path = path
        try:
            if data is None:
                self._file = open_segment_file(store, path)
            else:
                self._file = mapped_segment_file(store, data)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._corrupt(f"it is not a readable Arrow file: {error}") from None
        metadata = self._file.schema.metadata or {}
        owner = (
            metadata.get(b"spark_log.format"),
            metadata.get(b"spark_log.topic_id"),
            metadata.get(STRIPE_KEY),
        )
        expected = FORMAT_VERSION.encode(), topic_id.encode(), b"%d" % stripe
        if owner != expected or not self._file.schema.equals(RECORD_SCHEMA):
            raise self._corrupt(f"it is of {owner}, and an object of {expected} is expected")
        append_id: bytes = metadata.get(b"spark_log.append_id", b"")
        self.append_id = append_id.decode("utf-8", "replace")
        self._batches = ArrowBatches(self._file, path, SegmentName(0), append_id)
        self.directory = self._read_directory()
        self._decoded: _Decoded | None = None

    def __repr__(self) -> str:
        return f"<StripeObject path={self.path!r} entries={len(self.directory)}>"

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that the object holds."""
        decoded = self._decoded
        decoded_bytes = 0 if decoded is None else decoded.memory_bytes
        return self._file.memory_bytes + self.directory.memory_bytes + decoded_bytes

    @property
    def schema(self) -> pa.Schema:
        """The file's schema, with its metadata."""
        return self._file.schema

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._file.size_bytes

    @property
    def is_in_memory(self) -> bool:
        """Whether reading makes no request: the file is mapped, or was read whole on opening."""
        return self._file.is_in_memory

    def runs(self, entries: range) -> Sequence[range]:
        """Return consecutive entries, those of one Arrow batch together.

        Args:
            entries: numbers of the entries.
        """
        ordinals = self.directory.ordinals
        if ordinals[entries.start] == ordinals[entries.stop - 1]:
            return (entries,)
        ordinals = ordinals[entries.start : entries.stop]
        ends = [*(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(entries)]
        return [
            range(entries.start + first, entries.start + behind)
            for first, behind in pairwise([0, *ends])
        ]

    def block(self, run: range) -> Block:
        """Return the position and size of the Arrow batch that has a run of entries."""
        return self._file.blocks[int(self.directory.ordinals[run.start])]

    def compression(self, run: range) -> str:
        """Return the compression of the Arrow batch that has a run: none, lz4 or zstd."""
        ordinal = int(self.directory.ordinals[run.start])
        try:
            return self._file.compression(ordinal)
        except ValueError as error:
            raise self._batches.corrupt(str(error), ordinal) from None

    def read(
        self, entries: range, *, check_crcs: bool = True
    ) -> Iterator[tuple[Sequence[BatchHeader], pa.RecordBatch]]:
        """Yield headers and rows of consecutive entries, those of one Arrow batch together.

        Args:
            entries: numbers of the entries.
            check_crcs: whether to check the checksums of their batches.

        Raises:
            CorruptRecordError: a batch is damaged, or the directory does not fit it.
            NotFoundError: the file was deleted meanwhile, and is not in memory.
        """
        headers = self.directory.headers
        for run in self.runs(entries):
            yield headers[run.start : run.stop], self.rows(run, check_crcs=check_crcs)

    def rows(self, run: range, *, check_crcs: bool = True) -> pa.RecordBatch:
        """Return the rows of entries of one Arrow batch (`read`).

        The Arrow batch that was decoded last is kept, since each partition's entries are a part of
        it. The rows share its memory.
        """
        decoded, headers = self._decode(run, check_crcs=check_crcs), self.directory.headers
        row = headers[run.start].base_offset_delta
        count = headers[run.stop - 1].last_offset_delta + 1 - row
        return decoded.records.slice(row - headers[decoded.entries.start].base_offset_delta, count)

    def small(self, run: range, *, check_crcs: bool = True) -> Sequence[SmallBatch] | None:
        """Return the records of each of some entries of one Arrow batch, if all of them are few.

        They share no memory with those of other partitions.

        Returns:
            None if `rows` suits them better.
        """
        if run.stop - run.start >= _FEW_ENTRIES:
            return None
        decoded = self._decode(run, check_crcs=check_crcs)
        first = decoded.entries.start
        found = [each for each in decoded.small[run.start - first : run.stop - first] if each]
        return found if len(found) == len(run) else None

    def _decode(self, run: range, *, check_crcs: bool) -> _Decoded:
        """Return the Arrow batch of some entries.

        It is kept if entries of several partitions share it: then it is small.
        """
        directory, decoded = self.directory, self._decoded
        if decoded is not None and decoded.holds(run) and decoded.is_checked >= check_crcs:
            return decoded
        ordinal = int(directory.ordinals[run.start])
        first, behind = np.searchsorted(directory.ordinals, [ordinal, ordinal + 1]).tolist()
        entries, headers = range(first, behind), directory.headers[first:behind]
        decode = self._batches.decoder(RECORD_SCHEMA.names, check=False)
        # This reads headers and records by one request.
        (records,) = (decode(each) for each in self._file.in_order(ordinal, ordinal + 1))
        if self._batches.headers(ordinal).headers != headers:
            raise self._batches.corrupt("its headers are not those of the directory", ordinal)
        is_shared = directory.partitions[first] != directory.partitions[behind - 1]
        is_small = is_shared and records.num_rows <= _SMALL_ROWS * len(entries)
        small = small_batches(records, headers) if is_small else ()
        if check_crcs:
            self._batches.check_crcs(ordinal, headers, records, small)
        found = _Decoded(entries, check_crcs, records, small)
        if is_shared:
            self._decoded = found
        return found

    def _read_directory(self) -> EntryDirectory:
        last = len(self._file.blocks) - 1
        try:
            value = self._file.custom_metadata(last).get(ENTRIES_KEY) if last > 0 else None
            if value is None:
                raise ValueError("it has no directory of entries")
            return decode_entries(value, last)
        except ValueError as error:
            raise self._corrupt(str(error)) from None

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return corrupt_segment(self.path, reason)
