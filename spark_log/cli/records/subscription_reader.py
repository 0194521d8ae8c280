"""Reads the topics that a consumer is subscribed to: as a member of a group, or by a pattern."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.cli.records.subscription_ends import SubscriptionEnds
from spark_log.consumer import Consumer
from spark_log.log import FetchedRecords
from spark_log.record import RECORD_SCHEMA, ints_of
from spark_log.util import Clock

_POLL_MS: Final = 500


def read_subscription(
    consumer: Consumer,
    clock: Clock,
    *,
    timeout_ms: float | None = None,
    max_records: int | None = None,
    ends: SubscriptionEnds | None = None,
) -> Iterator[tuple[str, FetchedRecords]]:
    """Yield topics with records, in offset order within a partition.

    The iterator ends after ``max_records`` records, after ``timeout_ms`` without a record, or at
    the ends of the partitions. The positions of the consumer are then after the yielded records.

    Args:
        consumer: a consumer with a subscription.
        clock: the clock that measures the timeout.
        timeout_ms: the maximum time to wait for more records; None for no limit.
        max_records: the maximum number of records; None for no limit.
        ends: the ends at which reading stops; None to read for ever.

    Raises:
        SparkLogError: an error of `Consumer.poll_table`.
    """
    patience_ms = math.inf if timeout_ms is None else timeout_ms
    waiting_since_ms = clock.monotonic_ms()
    left = max_records
    while (left is None or left > 0) and not (ends is not None and ends.are_reached()):
        rest_ms = waiting_since_ms + patience_ms - clock.monotonic_ms()
        table = consumer.poll_table(
            int(min(_POLL_MS, max(0, rest_ms))), max_records=left, leader_epochs=True
        )
        if ends is not None:
            table = ends.cut(table)
        if not table.num_rows:
            if rest_ms <= 0:
                return
            continue
        for batch in table.to_batches():
            yield from _by_partition(batch)
        left = None if left is None else left - table.num_rows
        waiting_since_ms = clock.monotonic_ms()


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, FetchedRecords]]:
    """Split rows where the topic, the partition, the type of timestamps or the epoch changes."""
    keys = [pc.run_end_encode(batch.column(name)) for name in _SPLIT_COLUMNS]
    ends = np.unique(np.concatenate([ints_of(key.run_ends, np.int32) for key in keys])).tolist()
    start = 0
    for end in ends:
        rows = batch.slice(start, end - start)
        columns = [rows.column(name).cast(kind) for name, kind in _RECORD_TYPES.items()]
        records = FetchedRecords(
            partition=rows.column("partition")[0].as_py(),
            offsets=ints_of(rows.column("offset"), np.int64),
            records=pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA),
            timestamp_type=rows.column("timestampType")[0].as_py(),
            leader_epoch=rows.column("leaderEpoch")[0].as_py(),
        )
        yield rows.column("topic")[0].as_py(), records
        start = end


_SPLIT_COLUMNS: Final = ("topic", "partition", "timestampType", "leaderEpoch")
_RECORD_TYPES: Final = {field.name: field.type for field in RECORD_SCHEMA}
