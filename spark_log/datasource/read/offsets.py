"""Offsets as Spark's Kafka connector writes them: ``{"topic": {"0": 23, "1": -1}}``.

The one place where they, and times by partition, are parsed and printed; and what a read can begin
or end at, as it was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2

OFFSETS_EXAMPLE: Final = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
TIMES_EXAMPLE: Final = '{"topicA": {"0": 1735689600000}, "topicB": {"0": 1735689600000}}'


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A read begins or ends at offsets; `EARLIEST` and `LATEST` among them.

    Attributes:
        option: that said so, for messages.
        offsets: by partition, or one of the two words for all partitions.
    """

    option: str
    offsets: Mapping[TopicPartition, int] | int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A read begins, or ends before, the first record at or after a time.

    Attributes:
        option: that said so, for messages.
        timestamp_ms: milliseconds since the epoch, by partition or for all.
    """

    option: str
    timestamp_ms: Mapping[TopicPartition, int] | int


OffsetLimit = AtOffsets | AtTime
"""Where a read begins or ends, before anybody has looked at the log."""


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int] | int:
    """Read an offsets option.

    Args:
        text: ``earliest``, ``latest``, or JSON.
        option: the option's name, for messages.

    Returns:
        `EARLIEST`, `LATEST`, or an offset (or one of these two) for each partition tp.

    Raises:
        InvalidOptionError: it is neither.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        return _parse_by_partition(text, _offset)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOptionError(
            f"option {option!r} is {text!r}, expected earliest, latest, or JSON as "
            f"{OFFSETS_EXAMPLE} (-2 earliest, -1 latest)",
            key=option,
        ) from None


def parse_times(text: str, option: str) -> dict[TopicPartition, int]:
    """Read an option with milliseconds since the epoch for each partition.

    Raises:
        InvalidOptionError: it is not such JSON.
    """
    try:
        return _parse_by_partition(text, _time)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOptionError(
            f"option {option!r} is {text!r}, expected milliseconds since the epoch for every "
            f"partition, as JSON: {TIMES_EXAMPLE}",
            key=option,
        ) from None


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as the JSON that `parse_offsets` reads, in order of topic and partition."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(document, separators=(",", ":"))


def _parse_by_partition(text: str, number: Callable[[object], int]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): number(value)
        for topic, partitions in json.loads(text).items()
        for partition, value in partitions.items()
    }


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError(value)
    return value


def _time(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(value)
    return value
