"""Where a streaming query stands: what Spark keeps in the checkpoint, and shows as progress.

The connector's JSON, ``{"flights": {"0": 23, "1": 345}}``, and beside each topic a key with its id
and nothing under it: ``"flights@7sYJIPNEQJG7V6uYl0hVvQ": {}``. No topic can have an ``@`` in its
name, and a topic without partitions is nothing to whoever reads the connector's JSON: Kafka's
source, ``startingOffsets``, a program that sums up lags. Why there: docs/adr/0007.

Where a query's first batch ends, where it begins is noted in the same way, for each topic:
``"flights@from[0:0,1:300]": {}``. Kafka's source keeps that in ``sources/0/0`` of the checkpoint; a
Python source is not told where the checkpoint is, but Spark keeps this document in ``offsets/0``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spark_log.datasource.read.offsets import OFFSETS_EXAMPLE
from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

MARK = "@"
"""Stands between a topic and what is noted of it; not allowed in a topic's name."""

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_BEGINS = re.compile(r"from\[([0-9:,]*)\]")

OffsetDocument = dict[str, dict[str, int]]
"""What Spark is given and gives back: it makes JSON of it, and compares the text."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset to be read of each partition, and which topics these are.

    Attributes:
        offsets: by partition.
        topic_ids: by topic; those of a checkpoint that Kafka's source wrote are missing.
        begins: where the batch that ends here begins, when it is the first batch of its query; a
            partition that is missing was found later. None for any other batch. Two offsets that
            differ in nothing else are equal.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] | None = field(default=None, compare=False)

    @classmethod
    def from_document(cls, document: object) -> StreamOffset:
        """Read what `to_document`, or Kafka's source, made.

        Raises:
            InvalidOptionError: it is another source's.
        """
        offsets: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        begins: dict[TopicPartition, int] | None = None
        try:
            for name, partitions in _items(document):
                topic, mark, note = name.partition(MARK)
                if mark and not partitions:
                    if _TOPIC_ID.fullmatch(note):
                        topic_ids[topic] = note
                    elif found := _BEGINS.fullmatch(note):
                        begins = (begins or {}) | _begins(topic, found[1])
                    continue
                for partition, offset in _items(partitions):
                    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                        raise ValueError(offset)
                    offsets[TopicPartition(name, int(partition))] = offset
        except (TypeError, ValueError):
            raise InvalidOptionError(
                f"the checkpoint holds the offset {document!r}, which format spark_log cannot "
                f"read; expected {OFFSETS_EXAMPLE}, as format kafka writes it too. Was it "
                f"written by a query on another source? Then take another checkpointLocation",
                key="checkpointLocation",
            ) from None
        return cls(offsets, topic_ids, begins)

    def to_document(self) -> OffsetDocument:
        """Return it as Spark is given it; equal offsets give equal text."""
        document: OffsetDocument = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            document.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in sorted(self.topic_ids.items()):
            document[f"{topic}{MARK}{topic_id}"] = {}
        if self.begins is not None:
            for topic in self.by_topic():
                pairs = (
                    f"{partition}:{offset}"
                    for (name, partition), offset in sorted(self.begins.items())
                    if name == topic
                )
                document[f"{topic}{MARK}from[{','.join(pairs)}]"] = {}
        return document

    def by_topic(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets of each topic, in order."""
        topics: dict[str, dict[TopicPartition, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            topics.setdefault(tp.topic, {})[tp] = offset
        return topics

    def for_unchanged_topics(
        self, wanted: Iterable[TopicPartition], topic_id: Callable[[str], str | None]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of partitions whose topic has not been replaced by another one.

        Args:
            wanted: the partitions to look for; in their order.
            topic_id: tells the id of a topic by its name, None where it is not known.
        """
        return {
            tp: self.offsets[tp]
            for tp in wanted
            if tp in self.offsets and not self.is_recreated(tp.topic, topic_id(tp.topic))
        }

    def is_recreated(self, topic: str, topic_id: str | None) -> bool:
        """Whether the topic of this name is another one than that of these offsets."""
        own = self.topic_ids.get(topic)
        return own is not None and topic_id is not None and own != topic_id


def _begins(topic: str, text: str) -> dict[TopicPartition, int]:
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return {TopicPartition(topic, int(partition)): int(offset) for partition, offset in pairs}


def _items(value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    yield from value.items()
