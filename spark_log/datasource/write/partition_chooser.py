"""Chooses the partition of each record of a task."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidPartitionsError
from spark_log.record import bools_of, ints_of, partition_for_keys

STICKY_ROWS: Final = 10_000
"""Number of consecutive records without a key that go to one partition; the size of Spark's
Arrow batches.
"""


class PartitionChooser:
    """Chooses partitions for the records of one task and one topic, in order.

    The column ``partition`` takes precedence, then the key (murmur2, like Kafka's clients). Records
    with neither go to the next partition after every `STICKY_ROWS` records (KIP-480), so that they
    need no sort. The choice depends only on the records and their order, not on Spark's batches: a
    task that runs again makes the same choice.
    """

    def __init__(self, topic: str, num_partitions: int, first_partition: int) -> None:
        """Start at ``first_partition``.

        Args:
            topic: name of the topic, for messages.
            num_partitions: number of its partitions.
            first_partition: partition of the first records without a key, modulo
                ``num_partitions``.
        """
        self._topic = topic
        self._count = num_partitions
        self._first = first_partition
        self._unkeyed = 0

    def choose(self, keys: pa.Array, explicit: pa.Array | None) -> np.ndarray:
        """Return each record's partition, int32.

        Args:
            keys: the records' keys, binary.
            explicit: the column ``partition``, int32; null if the chooser decides.

        Raises:
            InvalidPartitionsError: the column contains a partition that the topic does not have.
        """
        if explicit is not None and not explicit.null_count:
            return self._checked(ints_of(explicit, np.int32))
        given = None if explicit is None or explicit.null_count == len(explicit) else explicit
        free = bools_of(keys.is_null())
        if given is not None:
            free &= bools_of(given.is_null())
        count = int(np.count_nonzero(free))
        if count == len(keys):
            return self._spread(count)
        partitions = partition_for_keys(keys, self._count)
        if count:
            partitions[free] = self._spread(count)
        if given is not None:
            is_given = bools_of(given.is_valid())
            partitions[is_given] = self._checked(ints_of(given, np.int32)[is_given])
        return partitions

    def _spread(self, count: int) -> np.ndarray:
        ordinals = np.arange(self._unkeyed, self._unkeyed + count)
        self._unkeyed += count
        spread = (self._first + ordinals // STICKY_ROWS) % self._count
        return spread.astype(np.int32)

    def _checked(self, partitions: np.ndarray) -> np.ndarray:
        wrong = partitions.view(np.uint32) >= self._count  # also a negative number
        if wrong.any():
            raise InvalidPartitionsError(
                f"column 'partition' contains {int(partitions[wrong][0])}, but topic "
                f"{self._topic!r} has {self._count} partitions, numbered from 0; this task has "
                f"written nothing"
            )
        return partitions
