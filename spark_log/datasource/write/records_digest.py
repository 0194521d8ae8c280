"""Digest of records, to compare two attempts at a write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log import PartitionLog
from spark_log.record import murmur2_of_keys


@dataclass(slots=True)
class RecordsDigest:
    """Number of records, and the sum of the hashes of their keys and values.

    The digest does not depend on the order of the records: a plan with a shuffle may give the same
    rows in another order when it runs again. It does not depend on timestamps either, which may be
    the time of the attempt.
    """

    count: int = 0
    total: int = 0

    def add(self, records: pa.RecordBatch) -> None:
        """Add records: binary columns ``key`` and ``value``."""
        if not records.num_rows:
            return
        hashes = np.zeros(records.num_rows, np.uint64)
        for name in ("key", "value"):
            column = records.column(name)
            hashes *= np.uint64(0x9E3779B97F4A7C15)
            hashes += murmur2_of_keys(column).astype(np.uint64)
            hashes += column.is_null().to_numpy(zero_copy_only=False).astype(
                np.uint64
            ) << np.uint64(32)
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        self.count += records.num_rows
        self.total = (self.total + int(hashes.sum(dtype=np.uint64))) % 2**64


def digest_appended_records(
    log: PartitionLog, producer_id: int, producer_epoch: int, *, max_records: int
) -> RecordsDigest | None:
    """Return the digest of the first records that a producer has appended in one epoch.

    Args:
        log: the partition's log.
        producer_id: id of the producer.
        producer_epoch: epoch of the producer.
        max_records: maximum number of records.

    Returns:
        The digest; None if the records cannot be found: the producer state has expired, some
        records are deleted, or they are in more runs than the producer state keeps.
    """
    entry = dict(log.producers().entries()).get(producer_id)
    if entry is None or entry.epoch != producer_epoch:
        return None
    digest, next_sequence = RecordsDigest(), 0
    for run in entry.runs:
        if run.base_sequence != next_sequence:
            return None
        next_sequence = run.next_sequence
        end_offset = min(run.end_offset, run.base_offset + max_records - digest.count)
        try:
            for batch in log.scan(run.base_offset, end_offset, columns=["key", "value"]):
                digest.add(batch.records)
        except OffsetOutOfRangeError:
            return None
        if end_offset < run.end_offset:
            break
    return digest if digest.count == min(max_records, next_sequence) else None
