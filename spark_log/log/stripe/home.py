"""Taking home: the records behind the newest marker go into the directories of their partitions.

Each partition that has records gets one rewritten segment, and then a home marker says that all
records before its number are at home. Any number of processes may do so at once, and each may stop
at any point: their segments overlap, and have the same records at the same offsets (protocol P5).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import AlreadyExistsError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.rewrite import write_home
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail
from spark_log.record import BatchHeader, rebase_batches

_log = logging.getLogger(__name__)

MAX_HOME_BYTES: Final = 134_217_728
"""Bytes of records with which one round of taking home stops reading objects."""

OpenPartition = Callable[[int], PartitionDirectory]
"""Returns the directory of a partition's records at home."""


@dataclass(frozen=True, slots=True)
class TakenHome:
    """One round of taking home.

    Attributes:
        number: number of the home marker.
        objects: number of objects that were read.
        partitions: number of partitions that got records.
        size_bytes: size of these records in memory.
        has_more: whether objects are left that this round had no memory for.
    """

    number: int
    objects: int
    partitions: int
    size_bytes: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class PlacedBatches:
    """Consecutive batches of one partition, out of one Arrow batch of an object.

    Attributes:
        base_offset: the first record's offset.
        headers: the batches' headers; their offset deltas count the rows of the object.
        records: the rows of all of them.
    """

    base_offset: int
    headers: Sequence[BatchHeader]
    records: pa.RecordBatch


def take_home(
    directory: StripeDirectory,
    open_partition: OpenPartition,
    *,
    max_bytes: int = MAX_HOME_BYTES,
) -> TakenHome | None:
    """Take home the objects behind the newest home marker, until enough records are in memory.

    Memory: the records of these objects, and one joined Arrow batch.

    Args:
        directory: the stripe's directory.
        open_partition: returns the directory of a partition.
        max_bytes: bytes of records with which the round stops reading objects.

    Returns:
        The round; None if no object is behind the newest home marker.

    Raises:
        CorruptRecordError: an object or a home marker is damaged or missing.
        UnknownOutcomeError: it is not known whether a segment or the marker was put. This does no
            harm: the next round puts it again.
        StorageError: the storage does not answer.
    """
    return HomeTaker(directory, open_partition, max_bytes).run()


class HomeTaker:
    """One round of taking home."""

    def __init__(
        self, directory: StripeDirectory, open_partition: OpenPartition, max_bytes: int
    ) -> None:
        self._directory = directory
        self._open_partition = open_partition
        self._max_bytes = max_bytes
        self._records: dict[int, list[PlacedBatches]] = defaultdict(list)
        self._objects = 0
        self._bytes = 0
        self._taken_from = 0
        self._tail = StripeTail(directory, self.on_object)

    def run(self) -> TakenHome | None:
        """Read objects, put the segments, then the marker."""
        tail = self._tail
        has_more = True
        while self._bytes < self._max_bytes:
            if not tail.take_next():
                has_more = False
                break
        self._forget_what_is_home()
        if not self._objects:
            return None
        self.put_segments(self._records)
        self.put_marker()
        number = tail.state.next_number
        _log.debug(
            "%s: %d objects below %d are at home in %d partitions",
            self._directory.path,
            self._objects,
            number,
            len(self._records),
        )
        return TakenHome(number, self._objects, len(self._records), self._bytes, has_more)

    def put_segments(self, records: Mapping[int, list[PlacedBatches]]) -> None:
        """Put the records of each partition into one segment."""
        config = self._directory.config
        of_topic = config.compression_type
        for partition, placed in sorted(records.items()):
            base_offset = placed[0].base_offset
            write_home(
                self._open_partition(partition),
                base_offset,
                (
                    rebase_batches(
                        each.headers,
                        each.records,
                        each.base_offset - each.headers[0].base_offset_delta - base_offset,
                        with_offsets=False,
                    )
                    for each in placed
                ),
                compression="none" if of_topic == "producer" else of_topic,
                index_interval_bytes=config.index_interval_bytes,
            )

    def put_marker(self) -> None:
        """Put the marker, unless another process has put it."""
        directory, tail = self._directory, self._tail
        content = encode_home(
            tail.state,
            topic_id=directory.topic_id,
            stripe=directory.stripe,
            now_us=tail.storage_us,
            expiration_ms=directory.config.producer_id_expiration_ms,
        )
        path = directory.file_path(tail.state.next_number, is_home=True)
        with suppress(AlreadyExistsError):
            directory.store.put_if_absent(path, content)

    def on_object(self, found: StripeObject, offsets: np.ndarray) -> None:
        """Keep the records of an object, by partition."""
        self._forget_what_is_home()
        self._objects += 1
        for partition, entries in found.directory.groups():
            number = entries.start
            for headers, records in found.read(entries):
                placed = PlacedBatches(int(offsets[number]), headers, records)
                self._records[partition].append(placed)
                self._bytes += int(records.nbytes)
                number += len(headers)

    def _forget_what_is_home(self) -> None:
        """Forget the records of objects in whose place a newer home marker has come."""
        if self._tail.taken_from != self._taken_from:
            self._taken_from = self._tail.taken_from
            self._records.clear()
            self._objects = self._bytes = 0
