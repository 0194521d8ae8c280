"""Files that name partitions in JSON, as Kafka's tools read them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

from spark_log.errors import InvalidConfigurationError
from spark_log.types import TopicPartition

PARTITIONS_FORM: Final = '{"partitions": [{"topic": "foo", "partition": 1}]}'


def read_partitions(path: Path) -> list[TopicPartition]:
    """Return the partitions in a file of the form that kafka-leader-election reads.

    Raises:
        InvalidConfigurationError: the file has another form, or names a partition twice.
    """
    try:
        listed = [
            TopicPartition(str(each["topic"]), whole_number(each["partition"]))
            for each in json.loads(path.read_bytes())["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfigurationError(
            f"{path} is not of the form {PARTITIONS_FORM}: {type(error).__name__} {error}"
        ) from None
    check_named_once(path, listed)
    return listed


def check_named_once(path: Path, partitions: list[TopicPartition]) -> None:
    """Check that a file names no partition twice.

    Raises:
        InvalidConfigurationError: the file names a partition twice.
    """
    if twice := [key for key, count in Counter(partitions).items() if count > 1]:
        raise InvalidConfigurationError(f"{path} names {', '.join(map(str, twice))} twice")


def whole_number(value: object) -> int:
    """Return a JSON value that is a whole number.

    Raises:
        TypeError: the value is no whole number.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value
