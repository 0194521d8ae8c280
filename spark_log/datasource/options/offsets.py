"""Offsets and times by partition as JSON, in the format of Spark's Kafka connector.

Example: ``{"topic": {"0": 23, "1": -1}}``. All code that parses or prints this format is in this
module.
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
    """Start or end of a read, given as offsets.

    Attributes:
        option: the option that sets it, for messages.
        offsets: an offset, `EARLIEST` or `LATEST` for each partition; or `EARLIEST` or `LATEST` for
            all partitions.
    """

    option: str
    offsets: Mapping[TopicPartition, int] | int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start or end of a read at the first record at or after a time.

    Attributes:
        option: the option that sets it, for messages.
        timestamp_ms: milliseconds since the epoch, by partition or for all partitions.
    """

    option: str
    timestamp_ms: Mapping[TopicPartition, int] | int


OffsetLimit = AtOffsets | AtTime
"""Start or end of a read as the user gave it, not yet resolved to offsets."""


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int] | int:
    """Parse an option that contains offsets.

    Args:
        text: ``earliest``, ``latest``, or JSON.
        option: the option's name, for messages.

    Returns:
        `EARLIEST`, `LATEST`, or for each partition an offset, `EARLIEST` or `LATEST`.

    Raises:
        InvalidOptionError: the text has another format.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        return _parse_by_partition(text, _offset)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOptionError(
            f"option {option!r} is {text!r}, expected earliest, latest, or JSON such as "
            f"{OFFSETS_EXAMPLE} (-2 earliest, -1 latest)",
            key=option,
        ) from None


def parse_times(text: str, option: str) -> dict[TopicPartition, int]:
    """Parse an option that contains milliseconds since the epoch for each partition.

    Raises:
        InvalidOptionError: the text has another format.
    """
    try:
        return _parse_by_partition(text, _time)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOptionError(
            f"option {option!r} is {text!r}, expected milliseconds since the epoch for every "
            f"partition, as JSON such as {TIMES_EXAMPLE}",
            key=option,
        ) from None


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as JSON for `parse_offsets`, ordered by topic and partition."""
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
