"""Buffers a task's records for any number of partitions, in bounded memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from spark_log.datasource.write.partition_writer import PartitionWriter
from spark_log.storage import storage_errors

BATCH_BYTES: Final = 1_048_576
"""Records are buffered up to about this size (Kafka's max.message.bytes)."""

MEMORY_POOL: Final = pa.system_memory_pool()
"""Memory pool of records that are sorted or joined: Arrow's default pool gives each block back to
the system, which clears its pages for the next one (ADR 34).
"""

_MAX_PENDING_BYTES: Final = 67_108_864
_MAX_OPEN: Final = 64


class RecordBuffers:
    """Collects records into batches, and passes these in order to the writers of their partitions.

    At most some dozen writers have an open segment. Records of the others wait in memory and, above
    a limit, in one local temporary file. This Arrow IPC file has no name, so a crash leaves nothing
    of it.
    """

    def __init__(
        self, *, max_pending_bytes: int = _MAX_PENDING_BYTES, max_open: int = _MAX_OPEN
    ) -> None:
        """Start without a record.

        Args:
            max_pending_bytes: approximate maximum of the memory.
            max_open: maximum number of open segments.
        """
        self._max_pending_bytes = max_pending_bytes
        self._max_open = max_open
        self._pending: dict[PartitionWriter, _PendingRecords] = {}
        self._held_bytes = 0
        self._open: set[PartitionWriter] = set()
        self._spill: _Spill | None = None

    @property
    def spilled_bytes(self) -> int:
        """Number of bytes written to the temporary file."""
        return 0 if self._spill is None else self._spill.size_bytes

    def add(
        self, records: pa.RecordBatch, parts: Iterator[tuple[PartitionWriter, int, int]]
    ) -> None:
        """Buffer records.

        Args:
            records: columns of `given_columns`, grouped by writer.
            parts: the writers, each with its first row and the row after its last.

        Raises:
            InvalidRecordError: the topic refuses the records.
            StorageFullError: the storage, or the disk of the temporary file, is full.
        """
        size_bytes = records.nbytes
        row_bytes = size_bytes / records.num_rows  # faster than the exact size of each slice
        for writer, start, end in parts:
            pending = self._pending.setdefault(writer, _PendingRecords())
            pending.add(records.slice(start, end - start), row_bytes * (end - start))
            if pending.is_due and self._try_open(writer):
                writer.write(pending.take())
        # A slice of a few rows keeps its whole batch in memory, so count the batches added since
        # the last flush.
        self._held_bytes += size_bytes
        if self._held_bytes >= self._max_pending_bytes:
            self._flush()

    def finish(self) -> None:
        """Pass on all buffered records, and finish every segment."""
        for writer, pending in self._pending.items():
            for records in self._spilled(writer):
                writer.write(records)
            if pending.batches:
                writer.write(pending.take())
            writer.finish()
        self.discard()

    def discard(self) -> None:
        """Drop all buffered records."""
        self._pending = {}
        if self._spill is not None:
            self._spill.close()

    def _try_open(self, writer: PartitionWriter) -> bool:
        """Return whether a writer may write now; spilled records have to wait for `finish`."""
        if writer in self._open:
            return True
        if len(self._open) >= self._max_open or (self._spill and self._spill.contains(writer)):
            return False
        self._open.add(writer)
        return True

    def _flush(self) -> None:
        """Write out all records in memory: to open segments, else to the temporary file."""
        for writer, pending in self._pending.items():
            if not pending.batches:
                continue
            if writer in self._open:
                writer.write(pending.take())
                continue
            if self._spill is None:
                self._spill = _Spill(pending.batches[0].schema)
            self._spill.write(writer, pending.take())
        self._held_bytes = 0

    def _spilled(self, writer: PartitionWriter) -> Iterator[pa.RecordBatch]:
        """Yield a writer's spilled records in batches of `BATCH_BYTES`."""
        if self._spill is None:
            return
        joined = _PendingRecords()
        for records in self._spill.read(writer):
            joined.add(records, records.nbytes)
            if joined.is_due:
                yield joined.take()
        if joined.batches:
            yield joined.take()


class _PendingRecords:
    """Records of one writer, in order."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size_bytes = 0.0

    @property
    def is_due(self) -> bool:
        """Whether to pass the records on: a single batch at half the size, which saves a copy."""
        return self.size_bytes >= BATCH_BYTES / (2 if len(self.batches) == 1 else 1)

    def add(self, records: pa.RecordBatch, size_bytes: float) -> None:
        self.batches.append(records)
        self.size_bytes += size_bytes

    def take(self) -> pa.RecordBatch:
        """Return all records as one batch, and remove them."""
        batches, self.batches, self.size_bytes = self.batches, [], 0.0
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches, memory_pool=MEMORY_POOL)


class _Spill:
    """The temporary file: one record batch for each flush of a writer.

    It is in Spark's directory for temporary files (``SPARK_LOCAL_DIRS``) and has no name.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        with storage_errors(self._where):
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - see close
        self._writer = ipc.new_file(pa.PythonFile(self._file, mode="w"), schema)
        self._reader: ipc.RecordBatchFileReader | None = None
        self._ordinals: dict[PartitionWriter, list[int]] = {}
        self._count = 0
        self.size_bytes = 0

    def contains(self, writer: PartitionWriter) -> bool:
        return writer in self._ordinals

    def write(self, writer: PartitionWriter, records: pa.RecordBatch) -> None:
        with storage_errors(self._where):
            self._writer.write_batch(records)
        self._ordinals.setdefault(writer, []).append(self._count)
        self._count += 1
        self.size_bytes += records.nbytes

    def read(self, writer: PartitionWriter) -> Iterator[pa.RecordBatch]:
        """Yield a writer's records in order, memory-mapped; ends the writing."""
        if self._reader is None:
            with storage_errors(self._where):
                self._writer.close()
                self._file.flush()
                mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._reader = ipc.open_file(pa.py_buffer(mapped))
        for ordinal in self._ordinals.get(writer, ()):
            yield self._reader.get_batch(ordinal)

    def close(self) -> None:
        """Close the file; batches that were read stay valid."""
        self._reader = None
        self._file.close()

    @property
    def _where(self) -> str:
        return self._directory or tempfile.gettempdir()
