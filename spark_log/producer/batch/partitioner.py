"""Chooses the partition of a record (Kafka's built-in partitioner, KIP-480 and KIP-794)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidConfigurationError, nearest
from spark_log.record import bools_of, murmur2_of_key, partition_for_keys

PartitionerName = Literal["default", "sticky", "round_robin", "random"]
PARTITIONER_NAMES: Final = ("default", "sticky", "round_robin", "random")

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""A user's partitioner, as in kafka-python: (key bytes, all partitions, available partitions) →
partition. All partitions are always available."""

_CACHED_KEY_BYTES: Final = 64
"""Maximum length of a key whose hash is cached."""


class TopicPartitioner(Protocol):
    """Chooses partitions for the records of one topic."""

    is_sticky: bool
    """Whether records without a key go to the sticky partition of the topic's route."""

    def choose(self, key: bytes | None, partitions: int) -> int | None:
        """Return the partition of a record; None: the sticky partition."""

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray | None:
        """Return the partition of each row as int32; -1 stands for the sticky partition.

        Returns:
            None if the sticky partition gets all rows.
        """


class DefaultPartitioner:
    """Murmur2 of the key, as in Kafka's clients; the sticky partition for records without a key."""

    is_sticky = True

    def __init__(self, *, ignore_keys: bool) -> None:
        self._ignore_keys = ignore_keys

    def choose(self, key: bytes | None, partitions: int) -> int | None:
        """Return the partition of the key's hash; None: the sticky partition."""
        if key is None or self._ignore_keys:
            return None
        hashed = _cached_murmur2(key) if len(key) <= _CACHED_KEY_BYTES else murmur2_of_key(key)
        return (hashed & 0x7FFFFFFF) % partitions

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray | None:
        """Return the partitions of the keys' hashes, -1 without a key; None if no row has a key."""
        if self._ignore_keys or keys.null_count == len(keys):
            return None
        chosen = partition_for_keys(keys, partitions)
        if keys.null_count:
            chosen[bools_of(keys.is_null())] = -1
        return chosen


class RoundRobinPartitioner:
    """Each partition in turn; keys are ignored (Kafka's ``RoundRobinPartitioner``)."""

    is_sticky = False

    def __init__(self) -> None:
        self._numbers = count()

    def choose(self, key: bytes | None, partitions: int) -> int:
        """Return the next partition."""
        return next(self._numbers) % partitions

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """Return the next partitions, one per row."""
        first = next(self._numbers)
        chosen = (np.arange(first, first + len(keys)) % partitions).astype(np.int32)
        self._numbers = count(first + len(keys))
        return chosen


class RandomPartitioner:
    """A random partition for every record; keys are ignored."""

    is_sticky = False

    def choose(self, key: bytes | None, partitions: int) -> int:
        """Return a random partition."""
        return random.randrange(partitions)

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """Return random partitions, one per row."""
        return np.random.default_rng().integers(partitions, size=len(keys), dtype=np.int32)


class CallablePartitioner:
    """A user's function, called for each record."""

    is_sticky = False

    def __init__(self, function: Partitioner) -> None:
        self._function = function

    def choose(self, key: bytes | None, partitions: int) -> int:
        """Return the function's result; the caller checks that it is a partition."""
        numbers = range(partitions)
        return self._function(key, numbers, numbers)

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """Return the function's result for each key."""
        return np.array([self.choose(key, partitions) for key in keys.to_pylist()], np.int32)


def partitioner_factory(
    partitioner: str | Partitioner, *, ignore_keys: bool
) -> Callable[[], TopicPartitioner]:
    """Return a function that makes a `TopicPartitioner`, one for each topic.

    Args:
        partitioner: one of `PARTITIONER_NAMES` (``sticky`` is ``default`` without keys), or a
            function.
        ignore_keys: ``partitioner.ignore.keys``.

    Raises:
        InvalidConfigurationError: ``partitioner`` is neither a known name nor a function.
    """
    if callable(partitioner):
        return lambda: CallablePartitioner(partitioner)
    makers: dict[str, Callable[[], TopicPartitioner]] = {
        "default": lambda: DefaultPartitioner(ignore_keys=ignore_keys),
        "sticky": lambda: DefaultPartitioner(ignore_keys=True),
        "round_robin": RoundRobinPartitioner,
        "random": RandomPartitioner,
    }
    if partitioner not in makers:
        close = nearest(str(partitioner), PARTITIONER_NAMES)
        names = ", ".join(PARTITIONER_NAMES)
        raise InvalidConfigurationError(
            f"partitioner {partitioner!r}: give one of {names}, or a function of key, "
            f"all partitions and available partitions",
            key="partitioner",
            nearest=close[0] if close else None,
        )
    return makers[partitioner]


_cached_murmur2 = lru_cache(maxsize=65_536)(murmur2_of_key)
