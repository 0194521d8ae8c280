"""The offset of a streaming query: what Spark writes to the checkpoint and shows as progress.

It is the connector's JSON, ``{"flights": {"0": 23, "1": 345}}``, with an extra key for each topic
that contains the topic's id and has no partitions: ``"flights@7sYJIPNEQJG7V6uYl0hVvQ": {}``. A
topic's name cannot contain ``@``, and programs that read the connector's JSON (Kafka's source,
``startingOffsets``, lag monitors) ignore a topic without partitions. docs/adr/0007 has the reasons.

The end of a query's first batch also contains the start of that batch, in one key for each topic:
``"flights@from[0:0,1:300]": {}``. Kafka's source writes the start to ``sources/0/0`` of the
checkpoint. A Python source does not know the checkpoint, but Spark writes this document to
``offsets/0``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spark_log.datasource.options import OFFSETS_EXAMPLE
from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

MARK = "@"
"""Separator between a topic and a note about it; not allowed in topic names."""

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_BATCH_STARTS = re.compile(r"from\[([0-9:,]*)\]")

OffsetDocument = dict[str, dict[str, int]]
"""The offset as Spark gets and returns it. Spark converts it to JSON and compares the text."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset to read of each partition, with the ids of the topics.

    Attributes:
        offsets: offsets by partition.
        topic_ids: ids by topic; missing in a checkpoint that Kafka's source wrote.
        batch_starts: start of the batch that ends here, if it is the first batch of its query;
            partitions that were created later are missing. None for all other batches. It does not
            count for equality.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    batch_starts: Mapping[TopicPartition, int] | None = field(default=None, compare=False)

    @classmethod
    def from_document(cls, document: object) -> StreamOffset:
        """Parse a document written by `to_document` or by Kafka's source.

        Raises:
            InvalidOptionError: the document has another format.
        """
        try:
            return cls._parse(document)
        except (TypeError, ValueError):
            raise InvalidOptionError(
                f"the checkpoint contains the offset {document!r}, which format spark_log cannot "
                f"read; expected {OFFSETS_EXAMPLE}, the format of spark_log and kafka. If a query "
                f"on another source wrote it, use another checkpointLocation",
                key="checkpointLocation",
            ) from None

    @classmethod
    def _parse(cls, document: object) -> StreamOffset:
        offsets: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        batch_starts: dict[TopicPartition, int] | None = None
        for name, partitions in _items(document):
            topic, mark, note = name.partition(MARK)
            if mark and not partitions:
                if _TOPIC_ID.fullmatch(note):
                    topic_ids[topic] = note
                elif found := _BATCH_STARTS.fullmatch(note):
                    batch_starts = (batch_starts or {}) | _parse_batch_starts(topic, found[1])
                continue
            for partition, offset in _items(partitions):
                if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                    raise ValueError(offset)
                offsets[TopicPartition(name, int(partition))] = offset
        return cls(offsets, topic_ids, batch_starts)

    def to_document(self) -> OffsetDocument:
        """Return the offset as Spark gets it; equal offsets give equal text."""
        document: OffsetDocument = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            document.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in sorted(self.topic_ids.items()):
            document[f"{topic}{MARK}{topic_id}"] = {}
        if self.batch_starts is not None:
            for topic in self.by_topic():
                pairs = (
                    f"{partition}:{offset}"
                    for (name, partition), offset in sorted(self.batch_starts.items())
                    if name == topic
                )
                document[f"{topic}{MARK}from[{','.join(pairs)}]"] = {}
        return document

    def by_topic(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets of each topic, ordered by partition."""
        topics: dict[str, dict[TopicPartition, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            topics.setdefault(tp.topic, {})[tp] = offset
        return topics

    def for_unchanged_topics(
        self, partitions: Iterable[TopicPartition], topic_id: Callable[[str], str | None]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of partitions whose topic was not deleted and created again.

        Args:
            partitions: the partitions; the result has their order.
            topic_id: function that returns a topic's current id; None if the id is unknown.
        """
        return {
            tp: self.offsets[tp]
            for tp in partitions
            if tp in self.offsets and not self.is_recreated(tp.topic, topic_id(tp.topic))
        }

    def is_recreated(self, topic: str, topic_id: str | None) -> bool:
        """Whether a topic was created again, by its current id; False if an id is unknown."""
        own = self.topic_ids.get(topic)
        return own is not None and topic_id is not None and own != topic_id


def _parse_batch_starts(topic: str, text: str) -> dict[TopicPartition, int]:
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return {TopicPartition(topic, int(partition)): int(offset) for partition, offset in pairs}


def _items(value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    yield from value.items()
