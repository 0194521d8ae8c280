"""Which partition a record goes to (Kafka's built-in partitioner, KIP-480 and KIP-794)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidConfigurationError, nearest
from spark_log.record.murmur2 import partition_for_keys

PartitionerName = Literal["default", "sticky", "round_robin", "random"]
NAMES: Final = ("default", "sticky", "round_robin", "random")

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""A callable of one's own, as in kafka-python: key (bytes), all partitions, and those of them that
are available (here all) → partition."""

_CACHED_KEY_BYTES: Final = 64
"""Longer keys are not kept for when they come again."""
_UNSIGNED: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


class Chooser(Protocol):
    """Chooses partitions for the records of one topic."""

    is_sticky: bool
    """Records without a key go to one partition until it has had a batch, then to another."""

    def choose(self, key: bytes | None, partitions: int) -> int | None:
        """Return the partition of a record, None where the sticky one is meant."""

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray | None:
        """Return the partition of every row, int32; -1 for the sticky one, None if all are that."""


class DefaultChooser:
    """Murmur2 of the key as in Kafka's clients, and stickiness where there is none."""

    is_sticky = True

    def __init__(self, *, ignore_keys: bool) -> None:
        self._ignores_keys = ignore_keys

    def choose(self, key: bytes | None, partitions: int) -> int | None:
        """See `Chooser.choose`."""
        if key is None or self._ignores_keys:
            return None
        hashed = _cached_murmur2(key) if len(key) <= _CACHED_KEY_BYTES else murmur2_of(key)
        return (hashed & 0x7FFFFFFF) % partitions

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray | None:
        """See `Chooser.choose_rows`."""
        if self._ignores_keys or keys.null_count == len(keys):
            return None
        chosen = partition_for_keys(keys, partitions)
        if keys.null_count:
            chosen[keys.is_null().to_numpy(zero_copy_only=False)] = -1
        return chosen


class RoundRobinChooser:
    """One partition after the other, keys or not (``RoundRobinPartitioner``)."""

    is_sticky = False

    def __init__(self) -> None:
        self._numbers = count()

    def choose(self, key: bytes | None, partitions: int) -> int:
        """See `Chooser.choose`."""
        return next(self._numbers) % partitions

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """See `Chooser.choose_rows`."""
        first = next(self._numbers)
        chosen = (np.arange(first, first + len(keys)) % partitions).astype(np.int32)
        self._numbers = count(first + len(keys))
        return chosen


class RandomChooser:
    """Any partition for every record, keys or not."""

    is_sticky = False

    def choose(self, key: bytes | None, partitions: int) -> int:
        """See `Chooser.choose`."""
        return random.randrange(partitions)

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """See `Chooser.choose_rows`."""
        return np.random.default_rng().integers(partitions, size=len(keys), dtype=np.int32)


class CallableChooser:
    """A function of the user's, called for each record."""

    is_sticky = False

    def __init__(self, function: Partitioner) -> None:
        self._function = function

    def choose(self, key: bytes | None, partitions: int) -> int:
        """See `Chooser.choose`; what the function answers is checked by the caller."""
        numbers = range(partitions)
        return self._function(key, numbers, numbers)

    def choose_rows(self, keys: pa.Array, partitions: int) -> np.ndarray:
        """See `Chooser.choose_rows`."""
        return np.array([self.choose(key, partitions) for key in keys.to_pylist()], np.int32)


def chooser_of(partitioner: str | Partitioner, *, ignore_keys: bool) -> Callable[[], Chooser]:
    """Return what makes a `Chooser` for each topic.

    Args:
        partitioner: one of `NAMES` (``sticky`` is ``default`` without keys), or a function.
        ignore_keys: ``partitioner.ignore.keys``.

    Raises:
        InvalidConfigurationError: it is neither.
    """
    if callable(partitioner):
        return lambda: CallableChooser(partitioner)
    makers: dict[str, Callable[[], Chooser]] = {
        "default": lambda: DefaultChooser(ignore_keys=ignore_keys),
        "sticky": lambda: DefaultChooser(ignore_keys=True),
        "round_robin": RoundRobinChooser,
        "random": RandomChooser,
    }
    if partitioner not in makers:
        close = nearest(str(partitioner), NAMES)
        raise InvalidConfigurationError(
            f"partitioner {partitioner!r}: give one of {', '.join(NAMES)}, or a function of key, "
            f"all partitions and available partitions",
            key="partitioner",
            nearest=close[0] if close else None,
        )
    return makers[partitioner]


def murmur2_of(key: bytes) -> int:
    """Return the 32-bit murmur2 hash of one key: for one, this is quicker than a vector of one."""
    length = len(key)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _UNSIGNED
        hashed = (hashed * _M & _UNSIGNED) ^ ((word ^ word >> 24) * _M & _UNSIGNED)
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _UNSIGNED
    hashed = (hashed ^ hashed >> 13) * _M & _UNSIGNED
    return hashed ^ hashed >> 15


_cached_murmur2 = lru_cache(maxsize=65_536)(murmur2_of)
