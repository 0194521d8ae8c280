"""Offsets as Spark's Kafka connector writes them: ``{"topic": {"0": 23, "1": -1}}``.

The one place where they are parsed and printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int] | int:
    """Read an offsets option.

    Args:
        text: ``earliest``, ``latest``, or JSON.
        option: the option's name, for messages.

    Returns:
        `EARLIEST`, `LATEST`, or an offset (or one of these two) for each partition named.

    Raises:
        InvalidOptionError: it is neither.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        document = json.loads(text)
        return {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InvalidOptionError(
            f"option {option!r} is {text!r}, expected earliest, latest, or JSON as "
            f'{{"topicA": {{"0": 23, "1": -1}}}} (-2 earliest, -1 latest)',
            key=option,
        ) from None


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as the JSON that `parse_offsets` reads, in order of topic and partition."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(document, separators=(",", ":"))


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError(value)
    return value
