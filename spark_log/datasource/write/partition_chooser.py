"""Which partition of a topic each record of a task goes to."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidPartitionsError
from spark_log.record.murmur2 import partition_for_keys

STICKY_ROWS: Final = 10_000
"""So many records without a key stay together: as many as Spark puts into an Arrow batch."""


class PartitionChooser:
    """Chooses for the records of one task and one topic, in order.

    The column ``partition`` wins, then the key (murmur2, as Kafka's clients), and records with
    neither go on to the next partition after some thousand (KIP-480), so that they need no sorting.
    What is chosen depends on the records and their order alone, not on how Spark cuts them into
    batches: a task that runs again chooses the same.
    """

    def __init__(self, topic: str, num_partitions: int, first_partition: int) -> None:
        """Args: topic: for messages; first_partition: where records without a key begin."""
        self._topic = topic
        self._count = num_partitions
        self._first = first_partition
        self._unkeyed = 0

    def choose(self, keys: pa.Array, explicit: pa.Array | None) -> np.ndarray:
        """Return each record's partition, int32.

        Args:
            keys: binary, of the records.
            explicit: their column ``partition``, int32, null where the chooser decides.

        Raises:
            InvalidPartitionsError: one is out of range.
        """
        given = None if explicit is None or explicit.null_count == len(explicit) else explicit
        free = keys.is_null().to_numpy(zero_copy_only=False)
        if given is not None:
            free &= given.is_null().to_numpy(zero_copy_only=False)
        count = int(np.count_nonzero(free))
        if count == len(keys):
            return self._spread(count)
        partitions = partition_for_keys(keys, self._count)
        if count:
            partitions[free] = self._spread(count)
        if given is not None:
            is_given = given.is_valid().to_numpy(zero_copy_only=False)
            partitions[is_given] = given.drop_null().to_numpy()
            self._check(partitions)
        return partitions

    def _spread(self, count: int) -> np.ndarray:
        ordinals = np.arange(self._unkeyed, self._unkeyed + count)
        self._unkeyed += count
        spread = (self._first + ordinals // STICKY_ROWS) % self._count
        return spread.astype(np.int32)

    def _check(self, partitions: np.ndarray) -> None:
        wrong = (partitions < 0) | (partitions >= self._count)
        if wrong.any():
            raise InvalidPartitionsError(
                f"column 'partition' holds {int(partitions[wrong][0])}, but topic "
                f"{self._topic!r} has {self._count} partitions, numbered from 0; nothing of "
                f"this task was written"
            )
