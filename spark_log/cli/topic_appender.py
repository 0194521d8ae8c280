"""Records on their way into a topic: spread over its partitions, staged, appended."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from spark_log.clock import Clock
from spark_log.log import PartitionLog, SegmentWriter
from spark_log.metadata import Cluster, TopicImage
from spark_log.record.murmur2 import partition_for_keys

MAX_STAGED_BYTES: Final = 64 * 1_048_576
"""A segment this large is appended, though more may be on its way."""
MAX_STAGED_MS: Final = 1000
"""So old a staged record may get: a consumer waits for it."""
STICKY_BYTES: Final = 16_384
"""Records without a key stay on a partition for so many bytes (Kafka's ``batch.size``, KIP-794)."""


@dataclass(slots=True)
class Appended:
    """What was appended to a partition: how many records, and between which offsets.

    Where other producers append too, theirs lie between these offsets as well.
    """

    records: int
    base_offset: int
    last_offset: int


class TopicAppender:
    """Streams records into one staged segment per partition, and appends them on `commit`.

    As a context manager it discards what was not committed; a crash leaves the same.

    Attributes:
        appended: by partition, what is in the log.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicImage,
        *,
        partition: int | None,
        compression: str,
        first_sticky: int,
    ) -> None:
        """Touches nothing yet.

        Args:
            cluster: where the topic is.
            topic: what to append to.
            partition: for all records; None: by key as Kafka's clients choose it, and without a
                key one partition after the other.
            compression: see `PartitionLog.append`.
            first_sticky: the partition that records without a key begin with.

        Raises:
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        self.appended: dict[int, Appended] = {}
        self._clock: Clock = cluster.clock
        self._logs: dict[int, PartitionLog] = {
            number: cluster.partition_log(topic, number)
            for number in (topic.partitions if partition is None else [partition])
        }
        self._count = topic.num_partitions
        self._fixed = partition
        self._compression = compression
        self._max_bytes = min(MAX_STAGED_BYTES, topic.config().segment_bytes)
        self._sticky = first_sticky % self._count
        self._sticky_bytes = 0
        self._staged: dict[int, SegmentWriter] = {}
        self._staged_since_ms = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for writer in self._staged.values():
            writer.discard()

    @property
    def records(self) -> int:
        """How many records were appended."""
        return sum(partition.records for partition in self.appended.values())

    @property
    def is_due(self) -> bool:
        """Whether what is staged should not wait for more."""
        if not self._staged:
            return False
        age_ms = self._clock.monotonic_ms() - self._staged_since_ms
        is_full = any(writer.size_bytes >= self._max_bytes for writer in self._staged.values())
        return is_full or age_ms >= MAX_STAGED_MS

    def add(self, records: pa.RecordBatch) -> None:
        """Stage records.

        Args:
            records: columns of `RECORD_SCHEMA`.

        Raises:
            StorageFullError: nothing of what is staged is visible.
        """
        if not records.num_rows:
            return
        if not self._staged:
            self._staged_since_ms = self._clock.monotonic_ms()
        partitions = self._partitions(records)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition)
            chosen = records if len(rows) == records.num_rows else records.take(pa.array(rows))
            self._writer(partition).write(chosen)

    def commit(self) -> None:
        """Append what is staged, one partition after the other.

        Raises:
            StorageError: see `PartitionLog.append_segment`; `appended` tells what is in the log.
        """
        for partition in sorted(self._staged):
            writer = self._staged[partition]
            if not writer.record_count:  # what was to come first was refused
                writer.discard()
                del self._staged[partition]
                continue
            info = self._logs[partition].append_segment(writer.finish())
            writer.discard()
            del self._staged[partition]
            count = info.last_offset - info.base_offset + 1
            total = self.appended.setdefault(partition, Appended(0, info.base_offset, -1))
            total.records += count
            total.last_offset = info.last_offset

    def _partitions(self, records: pa.RecordBatch) -> np.ndarray:
        if self._fixed is not None:
            return np.full(records.num_rows, self._fixed, np.int32)
        keys = records.column("key")
        without_key = keys.is_null().to_numpy(zero_copy_only=False)
        partitions = partition_for_keys(keys, self._count)
        if without_key.any():
            partitions[without_key] = self._sticky
            self._move_on(records.nbytes)
        return partitions

    def _move_on(self, size_bytes: int) -> None:
        self._sticky_bytes += size_bytes
        if self._sticky_bytes >= STICKY_BYTES:
            self._sticky = (self._sticky + 1) % self._count
            self._sticky_bytes = 0

    def _writer(self, partition: int) -> SegmentWriter:
        if partition not in self._staged:
            self._staged[partition] = self._logs[partition].segment_writer(self._compression)
        return self._staged[partition]
