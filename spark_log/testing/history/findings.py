"""The findings of a check of a history, as lines and as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import pyarrow as pa

from spark_log.testing.history.anomaly import Anomaly
from spark_log.types import TopicPartition
from spark_log.util.terminal_text import printable

_SCHEMA = pa.schema(
    [
        pa.field("anomaly", pa.string(), nullable=False),
        pa.field("is_allowed", pa.bool_(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("operations", pa.list_(pa.string()), nullable=False),
        pa.field("explanation", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly.

    Attributes:
        anomaly: its class.
        topic_partition: the partition that shows it; None for cycles, which span partitions.
        offset: the offset that shows it; None if it is not known.
        operations: the names of operations that show it; only some of them if they are many.
        explanation: one sentence.
    """

    anomaly: Anomaly
    topic_partition: TopicPartition | None
    offset: int | None
    operations: tuple[str, ...]
    explanation: str

    def __str__(self) -> str:
        where = "" if self.topic_partition is None else f"{self.topic_partition}: "
        shown = f" ({', '.join(self.operations)})" if self.operations else ""
        return printable(f"{self.anomaly}: {where}{self.explanation}{shown}")


@dataclass(frozen=True, slots=True)
class Findings:
    """The anomalies of a history.

    Attributes:
        findings: examples of each anomaly, in the order of `Anomaly`, then of the history.
        counts: the number of occurrences of each anomaly, which may be more than the examples.
        allowed: the anomalies that break no guarantee.
    """

    findings: tuple[Finding, ...]
    counts: Mapping[Anomaly, int]
    allowed: Set[Anomaly]

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that break a guarantee."""
        return tuple(each for each in self.findings if each.anomaly not in self.allowed)

    def to_arrow(self) -> pa.Table:
        """Return a row for each finding.

        Columns: ``anomaly``, ``is_allowed``, ``topic``, ``partition int32``, ``offset int64``,
        ``operations list<string>``, ``explanation``.
        """
        rows = [
            {
                "anomaly": str(each.anomaly),
                "is_allowed": each.anomaly in self.allowed,
                "topic": each.topic_partition and each.topic_partition.topic,
                "partition": each.topic_partition and each.topic_partition.partition,
                "offset": each.offset,
                "operations": list(each.operations),
                "explanation": each.explanation,
            }
            for each in self.findings
        ]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def __str__(self) -> str:
        """Return a line for each finding, and one for each anomaly that has more of them."""
        lines = [
            f"{each}{' [allowed]' if each.anomaly in self.allowed else ''}"
            for each in self.findings
        ]
        for anomaly, count in self.counts.items():
            shown = sum(each.anomaly == anomaly for each in self.findings)
            if shown < count:
                lines.append(f"{anomaly}: {count - shown:,} more")
        return "\n".join(lines)
