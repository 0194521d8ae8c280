"""Checks of arguments that several methods of `Admin` have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, get_args

from spark_log.errors import InvalidConfigurationError
from spark_log.log import IsolationLevel
from spark_log.types import TopicPartition

_Value = TypeVar("_Value")


def check_by_partition(
    name: str, given: Mapping[TopicPartition, _Value]
) -> dict[TopicPartition, _Value]:
    """Return an argument that must be a dict with partitions as keys; plain tuples are accepted.

    Raises:
        InvalidConfigurationError: it is not a dict, or has other keys.
    """
    example = "{TopicPartition('topic', 0): …}"
    if not isinstance(given, Mapping):
        raise InvalidConfigurationError(
            f"{name} is a {type(given).__name__}; give a dict by partition, such as {example}"
        )
    for key in given:
        if not (isinstance(key, tuple) and list(map(type, key)) == [str, int]):
            raise InvalidConfigurationError(
                f"{name} has the key {key!r}; give a TopicPartition, such as {example}"
            )
    return {TopicPartition(*key): each for key, each in given.items()}


def check_isolation_level(given: object) -> None:
    """Check an argument ``isolation_level``.

    Raises:
        InvalidConfigurationError: it is unknown.
    """
    if given not in get_args(IsolationLevel):
        raise InvalidConfigurationError(
            f"isolation_level is {given!r}; give {' or '.join(map(repr, get_args(IsolationLevel)))}"
        )
