"""Lag in a streaming query's progress: in records and in time, per partition.

A Python source cannot report metrics of its own (docs/kafka-connector-parity.md shows why), but it
can report the latest offset, which Spark copies into the progress::

    {
        "flights": {"0": 120, "1": 80},
        "flights@7sYJIPNEQJG7V6uYl0hVvQ": {},
        "flights@lag_ms[0:1500]": {},
    }

The lag in records is the difference to ``endOffset``, as with the connector. The lag in time is the
age of the first record that the batch leaves unread. It is stored in a key beside the topic, like
the topic's id (`StreamOffset`), only for partitions with lag, and is never written to the
checkpoint. `lag_of` returns both. `metrics_of` returns the lag in records under the names of the
connector's metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_log.datasource.stream.stream_offset import MARK, OffsetDocument, StreamOffset
from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

_NOTE = re.compile(r"lag_ms\[([0-9:,]+)\]")


class SourceProgress(Protocol):
    """The fields of ``query.lastProgress.sources[0]`` that this module reads."""

    @property
    def endOffset(self) -> str:
        """End of the batch, as JSON."""

    @property
    def latestOffset(self) -> str:
        """End of the log when the batch was planned, as JSON."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a partition after a batch.

    Attributes:
        records: number of offsets from the batch's end to the log's end.
        time_ms: age of the first unread record in milliseconds; 0 if every record was read; None if
            the age is unknown.
    """

    records: int
    time_ms: int | None


def latest_document(latest: StreamOffset, lag_ms: Mapping[TopicPartition, int]) -> OffsetDocument:
    """Return the latest offset with the lag in time, as Spark gets it."""
    document = latest.to_document()
    by_topic: dict[str, list[str]] = {}
    for (topic, partition), milliseconds in sorted(lag_ms.items()):
        by_topic.setdefault(topic, []).append(f"{partition}:{milliseconds}")
    for topic, noted in by_topic.items():
        document[f"{topic}{MARK}lag_ms[{','.join(noted)}]"] = {}
    return document


def metrics_of(source: SourceProgress) -> dict[str, str]:
    """Return the metrics that a query on format kafka shows as ``sources[0].metrics``.

    Spark leaves this field empty for all Python sources.

    Args:
        source: the progress of a source: ``query.lastProgress.sources[0]``.

    Returns:
        ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and ``avgOffsetsBehindLatest`` over
        all partitions, as text; empty if `lag_of` returns nothing.
    """
    behind = [lag.records for lag in lag_of(source).values()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def lag_of(source: SourceProgress) -> dict[TopicPartition, PartitionLag]:
    """Return the lag of each partition after a batch.

    Args:
        source: the progress of a source: ``query.lastProgress.sources[0]``, or the same field in an
            event of a ``StreamingQueryListener``.

    Returns:
        An empty dictionary if the progress is not that of a ``spark_log`` source, or has no
        offsets.
    """
    if not source.endOffset or not source.latestOffset:
        return {}
    latest, end = json.loads(source.latestOffset), json.loads(source.endOffset)
    if not isinstance(latest, dict) or not isinstance(end, dict):
        return {}
    times: dict[TopicPartition, int] = {}
    for name in latest:
        topic, _, note = name.partition(MARK)
        if found := _NOTE.fullmatch(note):
            for pair in found[1].split(","):
                partition, _, milliseconds = pair.partition(":")
                times[TopicPartition(topic, int(partition))] = int(milliseconds)
    try:
        ends = StreamOffset.from_document(end).offsets
        latest_offsets = StreamOffset.from_document(latest).offsets
    except InvalidOptionError:
        return {}
    lags = {}
    for tp, offset in latest_offsets.items():
        behind = max(0, offset - ends.get(tp, 0))
        lags[tp] = PartitionLag(behind, times.get(tp) if behind else 0)
    return lags
