"""Lag in a streaming query's progress: in records, and in time, per partition.

A Python source cannot report metrics of its own (docs/kafka-connector-parity.md has the proof), but
it can report the latest offset, which Spark puts into the progress as it is::

    {
        "flights": {"0": 120, "1": 80},
        "flights@7sYJIPNEQJG7V6uYl0hVvQ": {},
        "flights@lag_ms[0:1500]": {},
    }

Records behind are its difference from ``endOffset``, as with the connector. Time behind is how old
the first record is that the batch leaves unread; it is noted like a topic's id is (`StreamOffset`),
for the partitions that lag at all, and never comes into the checkpoint. `lag_of` reads both, and
`metrics_of` sums records up under the names of the connector's metrics.
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
    """What of ``query.lastProgress.sources[0]`` is looked at."""

    @property
    def endOffset(self) -> str:
        """Where the batch ends, JSON."""

    @property
    def latestOffset(self) -> str:
        """Where the log ended when the batch was planned, JSON."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a batch stays behind the end of a partition.

    Attributes:
        records: offsets between the batch's end and the log's.
        time_ms: how old the first record was that the batch leaves unread, milliseconds; 0 where it
            leaves none; None where that was not looked at.
    """

    records: int
    time_ms: int | None


def latest_document(latest: StreamOffset, lag_ms: Mapping[TopicPartition, int]) -> OffsetDocument:
    """Return what is reported as the latest offset."""
    document = latest.to_document()
    by_topic: dict[str, list[str]] = {}
    for (topic, partition), milliseconds in sorted(lag_ms.items()):
        by_topic.setdefault(topic, []).append(f"{partition}:{milliseconds}")
    for topic, noted in by_topic.items():
        document[f"{topic}{MARK}lag_ms[{','.join(noted)}]"] = {}
    return document


def metrics_of(source: SourceProgress) -> dict[str, str]:
    """Return what a query on format kafka shows as ``sources[0].metrics`` in its progress.

    Spark leaves that empty for sources in Python, whatever they do.

    Args:
        source: see `lag_of`.

    Returns:
        ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest``, ``avgOffsetsBehindLatest``, over all
        partitions, as text; empty where `lag_of` is.
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
        source: of a query's progress, ``query.lastProgress.sources[0]``, or what a
            ``StreamingQueryListener`` is handed.

    Returns:
        Empty where the progress is not that of a ``spark_log`` source, or tells no offsets.
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
