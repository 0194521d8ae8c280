"""Taking home: the records behind the newest marker go into the directories of their partitions.

Each partition that has records gets one rewritten segment, and then a home marker says that all
records before its number are at home. Any number of processes may do so at once, and each may stop
at any point: their segments overlap, and have the same records at the same offsets (protocol P5).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.errors import AlreadyExistsError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail
from spark_log.record import BatchHeader, int_array
from spark_log.storage import map_requests

_log = logging.getLogger(__name__)

MAX_HOME_BYTES: Final = 134_217_728
"""Bytes of records with which one round of taking home stops reading objects."""

MAX_HOME_OBJECTS: Final = 4_096
"""Objects with which it does, too: a few more than writers leave. A longer backlog goes home in
steps, each of which counts although the process may be killed in the next one."""

GATHERED_BYTES: Final = 8_388_608
"""Bytes of records that are sorted by partition together: by one copy, however small batches are.
"""

_SMALL_BYTES: Final = 4_096
"""Mean size of batches below which it is faster to copy them than to keep a piece for each."""

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
        has_more: whether the round stopped before the stripe's end.
    """

    number: int
    objects: int
    partitions: int
    size_bytes: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class PlacedBatches:
    """Consecutive batches of one partition, out of one object or several.

    Attributes:
        base_offset: the first record's offset.
        headers: the batches' headers, relative to the partition's first record of the round.
        records: the rows of all of them.
    """

    base_offset: int
    headers: Sequence[BatchHeader]
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _GatheredBatches:
    """The batches of one Arrow batch of an object.

    Attributes:
        partitions: the partition of each batch, int32.
        offsets: the first offset of each batch, int64.
        headers: the batches' headers.
        records: the rows of all of them.
    """

    partitions: np.ndarray
    offsets: np.ndarray
    headers: Sequence[BatchHeader]
    records: pa.RecordBatch

    def sorted(self) -> _GatheredBatches:
        """Return the same batches, sorted by partition. Those of a partition keep their order."""
        order = np.argsort(self.partitions, kind="stable")
        counts = np.array([header.record_count for header in self.headers], np.int64)
        begins = (np.cumsum(counts) - counts)[order]
        counts = counts[order]
        moved_by = begins - (np.cumsum(counts) - counts)
        rows = np.arange(self.records.num_rows) + np.repeat(moved_by, counts)
        return _GatheredBatches(
            self.partitions[order],
            self.offsets[order],
            [self.headers[index] for index in order.tolist()],
            self.records.take(int_array(rows, pa.int64())),
        )


def take_home(
    directory: StripeDirectory,
    open_partition: OpenPartition,
    *,
    max_bytes: int = MAX_HOME_BYTES,
) -> TakenHome | None:
    """Take home the objects behind the newest home marker, until enough records are in memory.

    A round stops after `MAX_HOME_OBJECTS` objects, too.

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
        self._gathered: list[_GatheredBatches] = []
        self._gathered_bytes = 0
        self._objects = 0
        self._bytes = 0
        self._taken_from = 0
        self._tail = StripeTail(directory, self.on_object)

    def run(self) -> TakenHome | None:
        """Read objects, put the segments, then the marker."""
        tail = self._tail
        has_more = True
        while self._bytes < self._max_bytes and self._objects < MAX_HOME_OBJECTS:
            if not tail.take_next():
                has_more = False
                break
        self._forget_what_is_home()
        if not self._objects:
            return None
        self._sort()
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
        """Put the records of each partition into one segment, many at the same time."""
        from spark_log.log.rewrite import write_home  # late: most producers take nothing home

        config = self._directory.config
        of_topic = config.compression_type

        def put(partition: int) -> None:
            placed = records[partition]
            base_offset = placed[0].base_offset
            write_home(
                self._open_partition(partition),
                base_offset,
                ((tuple(each.headers), each.records) for each in placed),
                compression="none" if of_topic == "producer" else of_topic,
                index_interval_bytes=config.index_interval_bytes,
            )

        map_requests(self._directory.store, put, sorted(records))

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
        """Keep the records of an object."""
        self._forget_what_is_home()
        self._objects += 1
        number, partitions = 0, found.directory.partitions
        for headers, records in found.read(range(len(found.directory))):
            entries = slice(number, number + len(headers))
            self._gathered.append(
                _GatheredBatches(partitions[entries], offsets[entries], headers, records)
            )
            self._gathered_bytes += int(records.nbytes)
            self._bytes += int(records.nbytes)
            number += len(headers)
        if self._gathered_bytes >= GATHERED_BYTES:
            self._sort()

    def _sort(self) -> None:
        """Sort what was gathered by partition."""
        for partition, offsets, headers, records in _by_partition(self._together()):
            placed = self._records[partition]
            first = placed[0].base_offset if placed else int(offsets[0])
            deltas = (offsets - first).tolist()
            moved = [
                replace(
                    header,
                    base_offset_delta=delta,
                    last_offset_delta=delta + header.record_count - 1,
                )
                for header, delta in zip(headers, deltas, strict=True)
            ]
            placed.append(PlacedBatches(int(offsets[0]), moved, records))
        self._gathered, self._gathered_bytes = [], 0

    def _together(self) -> list[_GatheredBatches]:
        """Return what was gathered; as one if its batches are small, so that few pieces remain."""
        gathered = self._gathered
        batches = sum(len(each.headers) for each in gathered)
        if len(gathered) < 2 or self._gathered_bytes >= batches * _SMALL_BYTES:
            return gathered
        return [
            _GatheredBatches(
                np.concatenate([each.partitions for each in gathered]),
                np.concatenate([each.offsets for each in gathered]),
                [header for each in gathered for header in each.headers],
                pa.concat_batches([each.records for each in gathered]),
            ).sorted()
        ]

    def _forget_what_is_home(self) -> None:
        """Forget the records of objects in whose place a newer home marker has come."""
        if self._tail.taken_from != self._taken_from:
            self._taken_from = self._tail.taken_from
            self._records.clear()
            self._gathered.clear()
            self._objects = self._bytes = self._gathered_bytes = 0


def _by_partition(
    gathered: Sequence[_GatheredBatches],
) -> Iterator[tuple[int, np.ndarray, Sequence[BatchHeader], pa.RecordBatch]]:
    """Yield consecutive batches of a partition: its number, offsets, headers, and the rows."""
    for each in gathered:
        ends = np.cumsum([header.record_count for header in each.headers]).tolist()
        changes = (np.flatnonzero(np.diff(each.partitions)) + 1).tolist()
        row = 0
        for first, behind in pairwise([0, *changes, len(ends)]):
            end = ends[behind - 1]
            yield (
                int(each.partitions[first]),
                each.offsets[first:behind],
                each.headers[first:behind],
                each.records.slice(row, end - row),
            )
            row = end
