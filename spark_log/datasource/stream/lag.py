"""Lag in a streaming query's progress: in records and in time, per partition.

A Python source cannot report metrics of its own (docs/internals/kafka-connector-parity.md shows
why), but it can report the latest offset, which Spark copies into the progress::

    {
        "flights": {"0": 120, "1": 80},
        "flights@7sYJIPNEQJG7V6uYl0hVvQ": {},
        "flights@lag_ms[0:1500]": {},
        "flights@log_start[0:90]": {},
    }

The lag in records is the difference to ``endOffset``, as with the connector, without the records
that were deleted before the query read them: ``log_start`` is the log start offset of partitions
where it is greater than ``endOffset``. The lag in time (``lag_ms``) is the age of the first record
that the batch leaves unread. Both have keys of their own, like the topic's id (`StreamOffset`),
only for partitions with lag, and are never written to the checkpoint. `lag_of` returns them.
`metrics_of` returns the lag in records under the names of the connector's metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from spark_log.datasource.stream.stream_offset import MARK, OffsetDocument, StreamOffset
from spark_log.errors import InvalidOptionError
from spark_log.log import Lag
from spark_log.types import TopicPartition

_LAG_MS: Final = "lag_ms"
_LOG_START: Final = "log_start"
_NOTE: Final = re.compile(rf"({_LAG_MS}|{_LOG_START})\[([0-9:,]+)\]")


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
        records: number of offsets from the batch's end to the log's end that can be read.
        time_ms: age of the first of them in milliseconds; 0 if there is none; None if the age is
            unknown.
        deleted: number of offsets from the batch's end to the log's start: their records were
            deleted before the query read them.
    """

    records: int
    time_ms: int | None
    deleted: int = 0


def latest_document(
    latest: StreamOffset,
    lag_ms: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int],
) -> OffsetDocument:
    """Return the latest offset, the lag in time and log starts as a document for Spark."""
    document = latest.to_document()
    for name, numbers in ((_LAG_MS, lag_ms), (_LOG_START, log_starts)):
        by_topic: dict[str, list[str]] = {}
        for (topic, partition), number in sorted(numbers.items()):
            by_topic.setdefault(topic, []).append(f"{partition}:{number}")
        for topic, noted in by_topic.items():
            document[f"{topic}{MARK}{name}[{','.join(noted)}]"] = {}
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
    notes: dict[str, dict[TopicPartition, int]] = {_LAG_MS: {}, _LOG_START: {}}
    for name in latest:
        topic, _, note = name.partition(MARK)
        if found := _NOTE.fullmatch(note):
            for pair in found[2].split(","):
                partition, _, number = pair.partition(":")
                notes[found[1]][TopicPartition(topic, int(partition))] = int(number)
    try:
        read = StreamOffset.from_document(end)
        log_ends = StreamOffset.from_document(latest)
    except InvalidOptionError:
        return {}
    # Nothing is read yet of a topic that was deleted and created again.
    positions = read.for_unchanged_topics(log_ends.offsets, log_ends.topic_ids.get)
    lags = {}
    for tp, log_end in log_ends.offsets.items():
        lag = Lag.of(positions.get(tp, 0), notes[_LOG_START].get(tp, 0), log_end)
        time_ms = notes[_LAG_MS].get(tp) if lag.unread else 0
        lags[tp] = PartitionLag(lag.unread, time_ms, lag.deleted)
    return lags
