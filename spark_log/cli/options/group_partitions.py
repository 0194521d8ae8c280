"""Partitions in the form of kafka-consumer-groups: ``topic``, or ``topic:0,1``."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.metadata import MetadataImage
from spark_log.types import TopicPartition


def parse_partitions(image: MetadataImage, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that values of ``--topic`` name, each once, in the given order.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition does not exist.
        typer.BadParameter: a text has another form.
    """
    found: dict[TopicPartition, None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        topic = image.topic(name)
        try:
            wanted = [int(each) for each in numbers.split(",")] if colon else topic.partitions
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a topic, nor a topic with partitions such as {name}:0,1",
                param_hint="'--topic'",
            ) from None
        for number in sorted(wanted):
            if number not in topic.partitions:
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r} has no partition {number}; it has {topic.num_partitions}, "
                    f"numbered from 0",
                    topic=name,
                )
            found[TopicPartition(name, number)] = None
    return list(found)
