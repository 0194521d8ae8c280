"""Records of one task that wait to be written, for any number of partitions, in bounded memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from spark_log.datasource.write.partition_share import PartitionShare
from spark_log.record.schema import RECORD_SCHEMA
from spark_log.storage.os_errors import storage_errors

BATCH_BYTES: Final = 1_048_576
"""Records wait until they make a record batch of about this size (Kafka's max.message.bytes)."""

_MAX_WAITING_BYTES: Final = 67_108_864
_MAX_OPEN: Final = 64


class RecordBuffers:
    """Collects records into batches, and hands these to the shares of their partitions, in order.

    At most some dozen shares have an open segment. The records of the others wait in memory, and,
    when there is too much of it, in one local temporary file, an Arrow IPC file without a name: a
    crash leaves nothing of it.
    """

    def __init__(
        self, *, max_waiting_bytes: int = _MAX_WAITING_BYTES, max_open: int = _MAX_OPEN
    ) -> None:
        """Args: max_waiting_bytes: in memory, about; max_open: segments that are open at once."""
        self._max_waiting_bytes = max_waiting_bytes
        self._max_open = max_open
        self._waiting: dict[PartitionShare, _Waiting] = {}
        self._held_bytes = 0
        self._open: set[PartitionShare] = set()
        self._spill: _Spill | None = None

    @property
    def spilled_bytes(self) -> int:
        """How much went through the temporary file."""
        return 0 if self._spill is None else self._spill.size_bytes

    def add(
        self, records: pa.RecordBatch, parts: Iterator[tuple[PartitionShare, int, int]]
    ) -> None:
        """Take in records.

        Args:
            records: columns of `RECORD_SCHEMA`, those of one share together.
            parts: the shares, each with its first row and the row after its last.

        Raises:
            InvalidRecordError: they do not fit the topic.
            StorageFullError: no space is left.
        """
        size_bytes = records.nbytes
        row_bytes = size_bytes / records.num_rows  # to measure every slice takes longer than it
        for share, start, end in parts:
            waiting = self._waiting.setdefault(share, _Waiting())
            waiting.add(records.slice(start, end - start), row_bytes * (end - start))
            if waiting.size_bytes >= BATCH_BYTES and self._may_open(share):
                share.write(waiting.take())
        # A slice of a few rows holds the whole batch in memory: what counts is what came since
        # nothing at all was held.
        self._held_bytes += size_bytes
        if self._held_bytes >= self._max_waiting_bytes:
            self._let_go()

    def finish(self) -> None:
        """Hand over all that waits, and end every segment."""
        for share, waiting in self._waiting.items():
            for records in self._spilled(share):
                share.write(records)
            if waiting.batches:
                share.write(waiting.take())
            share.finish()
        self.discard()

    def discard(self) -> None:
        """Give up what waits."""
        self._waiting = {}
        if self._spill is not None:
            self._spill.close()

    def _may_open(self, share: PartitionShare) -> bool:
        """Whether a share may write at once. Once it spilled it has to wait for the end."""
        if share in self._open:
            return True
        if len(self._open) >= self._max_open or (self._spill and self._spill.holds(share)):
            return False
        self._open.add(share)
        return True

    def _let_go(self) -> None:
        """Write out whatever is held in memory."""
        for share, waiting in self._waiting.items():
            if not waiting.batches:
                continue
            if share in self._open:
                share.write(waiting.take())
                continue
            if self._spill is None:
                self._spill = _Spill()
            self._spill.write(share, waiting.take())
        self._held_bytes = 0

    def _spilled(self, share: PartitionShare) -> Iterator[pa.RecordBatch]:
        """Yield what was spilled of a share, joined to batches of the usual size."""
        if self._spill is None:
            return
        joined = _Waiting()
        for records in self._spill.read(share):
            joined.add(records, records.nbytes)
            if joined.size_bytes >= BATCH_BYTES:
                yield joined.take()
        if joined.batches:
            yield joined.take()


class _Waiting:
    """Records of one share, in order."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size_bytes = 0.0

    def add(self, records: pa.RecordBatch, size_bytes: float) -> None:
        self.batches.append(records)
        self.size_bytes += size_bytes

    def take(self) -> pa.RecordBatch:
        """Return all as one batch, and keep nothing."""
        batches, self.batches, self.size_bytes = self.batches, [], 0.0
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Spill:
    """The temporary file: one record batch for each time that a share's records were let go.

    It lies where Spark keeps its own (``SPARK_LOCAL_DIRS``), and has no name.
    """

    def __init__(self) -> None:
        self._directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        with storage_errors(self._where):
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - see close
        self._writer = ipc.new_file(pa.PythonFile(self._file, mode="w"), RECORD_SCHEMA)
        self._reader: ipc.RecordBatchFileReader | None = None
        self._ordinals: dict[PartitionShare, list[int]] = {}
        self._count = 0
        self.size_bytes = 0

    def holds(self, share: PartitionShare) -> bool:
        return share in self._ordinals

    def write(self, share: PartitionShare, records: pa.RecordBatch) -> None:
        with storage_errors(self._where):
            self._writer.write_batch(records)
        self._ordinals.setdefault(share, []).append(self._count)
        self._count += 1
        self.size_bytes += records.nbytes

    def read(self, share: PartitionShare) -> Iterator[pa.RecordBatch]:
        """Yield a share's records, mapped, in order; nothing can be written any more."""
        if self._reader is None:
            with storage_errors(self._where):
                self._writer.close()
                self._file.flush()
                mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._reader = ipc.open_file(pa.py_buffer(mapped))
        for ordinal in self._ordinals.get(share, ()):
            yield self._reader.get_batch(ordinal)

    def close(self) -> None:
        """End it; what was read stays valid."""
        self._reader = None
        self._file.close()

    @property
    def _where(self) -> str:
        return self._directory or tempfile.gettempdir()
