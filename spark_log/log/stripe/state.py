"""The state after a prefix of a stripe: the ends of its partitions, and their producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np

from spark_log.errors import LogEndOffsetMismatchError, SparkLogError
from spark_log.log.producers import NOT_LISTED_US, ProducerState
from spark_log.log.segment import BatchAppend
from spark_log.log.stripe.entry import StripeEntry
from spark_log.record import BatchHeader, EndTransactionMarker, EntryDirectory

UNKNOWN_OFFSET: Final = -1
"""The place of a transaction marker that a partition has: its state does not tell the offset."""

_PARTITION_BYTES: Final = 1_000
"""Approximate memory of the state of a partition without producers."""

_PRODUCER_BYTES: Final = 1_200
"""Approximate memory of the state of one producer with five runs."""


class StripeState:
    """The state after the objects before `next_number`. Every process derives the same one.

    It follows from the directories of the objects alone: each entry in a stripe counts, since its
    writer had taken in all objects before, and left out repeats and what is refused (protocol P2).

    Attributes:
        next_number: number of the next object.
        leader_epochs: the leader epoch of each partition that has one above 0.
        is_ended: whether the stripe has its last object: its partitions have moved, or will.
        is_overgrown: whether a partition has far more producers than at first, most of which may
            have expired. The next listing forgets those.
    """

    def __init__(
        self,
        next_number: int = 0,
        partitions: Mapping[int, ProducerState] | None = None,
        *,
        leader_epochs: Mapping[int, int] | None = None,
        is_ended: bool = False,
    ) -> None:
        """Begin with the state of a home marker; by default with that of an empty stripe.

        Args:
            next_number: number of the next object.
            partitions: the producer state of each partition that has had entries.
            leader_epochs: the leader epoch of each partition that has one above 0.
            is_ended: whether the stripe has its last object.
        """
        self.next_number = next_number
        self.is_ended = is_ended
        self.leader_epochs = dict(leader_epochs or {})
        self.is_overgrown = False
        self._partitions = dict(partitions or {})
        # Those of a marker may have producers whose times no listing has shown.
        self._undated = set(self._partitions)

    def partitions(self) -> Iterator[tuple[int, ProducerState]]:
        """Yield each partition that has had entries, and its producer state, in order."""
        yield from sorted(self._partitions.items())

    @property
    def partition_count(self) -> int:
        """Number of partitions that have had entries."""
        return len(self._partitions)

    def ends(self) -> dict[int, int]:
        """Return the end offset of each partition that has had entries."""
        return {partition: each.offset for partition, each in self._partitions.items()}

    def end_offset(self, partition: int) -> int:
        """Return the log end offset of a partition."""
        producers = self._partitions.get(partition)
        return 0 if producers is None else producers.offset

    def producers(self, partition: int) -> ProducerState | None:
        """Return the producers of a partition; None if it has had no entries."""
        return self._partitions.get(partition)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the state."""
        states = self._partitions.values()
        return sum(_PARTITION_BYTES + each.count * _PRODUCER_BYTES for each in states)

    def take(self, directory: EntryDirectory) -> np.ndarray:
        """Take in the next object. Aborted transactions are not listed: readers of records do it.

        Args:
            directory: the object's entries.

        Returns:
            The base offset of each entry, int64.
        """
        array, bits = directory.array, BatchHeader.TRANSACTIONAL_BIT | BatchHeader.CONTROL_BIT
        offsets: list[int] = []
        for number, (partition, is_plain, producer_id, epoch, sequence, count) in enumerate(
            zip(
                directory.partitions.tolist(),
                ((array["attributes"] & bits) == 0).tolist(),
                array["producer_id"].tolist(),
                array["producer_epoch"].tolist(),
                array["base_sequence"].tolist(),
                array["record_count"].tolist(),
                strict=True,
            )
        ):
            producers = self._partitions.get(partition) or self._of(partition)
            offset = producers.offset
            offsets.append(offset)
            if is_plain and producers.replay_next(producer_id, epoch, sequence, count):
                continue
            header = directory.headers[number]
            producers.replay(offset - header.base_offset_delta, (header,), NOT_LISTED_US)
            producers.transactions.forget_aborted()
            self.is_overgrown |= producers.is_overgrown
        self._undated.update(directory.partitions.tolist())
        if directory.is_last:
            self.is_ended = True
            epochs = array["leader_epoch"].tolist()
            self.leader_epochs.update(zip(directory.partitions.tolist(), epochs, strict=True))
        self.next_number += 1
        return np.array(offsets, np.int64)

    def decide(
        self, entry: StripeEntry, *, now_us: int, expiration_ms: int, where: str
    ) -> int | SparkLogError | None:
        """Decide whether an entry may be in the next object.

        Args:
            entry: the entry; all entries of its producer before it are in the stripe.
            now_us: the storage's time, or an earlier one.
            expiration_ms: ``producer.id.expiration.ms``.
            where: the stripe's directory, for messages.

        Returns:
            The first offset of an entry that the stripe has (`UNKNOWN_OFFSET` of a marker), the
            error that refuses the entry, or None if it may be put.
        """
        content, producers = entry.content, self._of(entry.partition)
        if not isinstance(content, BatchAppend | EndTransactionMarker):
            return UNKNOWN_OFFSET if self.is_ended else None
        if not isinstance(content, BatchAppend):
            return UNKNOWN_OFFSET if producers.has_marker(content) else None
        where = f"{where}, partition {entry.partition}"
        decision: int | SparkLogError | None = None
        if content.producer is not None:
            check = partial(
                producers.check, now_us=now_us, expiration_ms=expiration_ms, where=where
            )
            decision = producers.decide(content.producer, content.record_count, check)
        expected = entry.expected_end_offset
        if decision is None and expected not in (None, producers.offset):
            return LogEndOffsetMismatchError(
                f"{where}: the log ends at {producers.offset}, not at {expected}; read up to its "
                f"end and try again",
                expected=expected,
                actual=producers.offset,
            )
        return decision

    def on_listed(self, newest_us: int, expiration_ms: int) -> None:
        """Date what was appended since the last listing, and forget producers that have expired.

        Args:
            newest_us: the newest last-modified time of a listing that began after the objects were
                read. No append is newer.
            expiration_ms: ``producer.id.expiration.ms``.
        """
        for partition in self._undated:
            producers = self._partitions[partition]
            producers.set_append_times(lambda offset: newest_us, newest_us)
            if producers.is_overgrown:
                producers = producers.without_expired(now_us=newest_us, expiration_ms=expiration_ms)
                self._partitions[partition] = producers
        self._undated.clear()
        self.is_overgrown = False

    def _of(self, partition: int) -> ProducerState:
        producers = self._partitions.get(partition)
        if producers is None:
            producers = self._partitions[partition] = ProducerState()
        return producers
