"""Entries to append to a stripe: batches, transaction markers and barriers of one partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pyarrow import ipc

from spark_log.log.segment import BatchAppend, ConsecutiveBatches, StagedSegment
from spark_log.record import RECORD_SCHEMA, EndTransactionMarker, sequence_after

if TYPE_CHECKING:
    from spark_log.record import LeaderChange

    EntryContent = BatchAppend | EndTransactionMarker | LeaderChange


@dataclass(frozen=True, slots=True)
class StripeEntry:
    """A batch of one producer, or a control record, for one partition. It has no offset yet.

    Attributes:
        partition: number of the partition.
        content: the batch; or a transaction marker; or the barrier of the leader epoch that begins
            where the stripe ends.
        expected_end_offset: required log end offset of the partition, where this is the only entry
            of it; None appends at any offset.
    """

    partition: int
    content: EntryContent
    expected_end_offset: int | None = None

    @property
    def has_to_be_decided(self) -> bool:
        """Whether the state of its partition decides whether it may be put."""
        is_conditional = self.expected_end_offset is not None
        return self.producer_id is not None or is_conditional or self.is_barrier

    @property
    def is_barrier(self) -> bool:
        """Whether the stripe ends with it."""
        return not isinstance(self.content, BatchAppend | EndTransactionMarker)

    @property
    def producer_id(self) -> int | None:
        """The producer's id; None for a batch without a producer, and for a barrier."""
        content = self.content
        if isinstance(content, EndTransactionMarker):
            return content.producer_id
        if isinstance(content, BatchAppend) and content.producer is not None:
            return content.producer.producer_id
        return None

    def leader_epoch(self, leader_epochs: Mapping[int, int]) -> int:
        """Return the leader epoch of the entry's header.

        Args:
            leader_epochs: the leader epoch of each partition that has one above 0.
        """
        if self.is_barrier:
            return cast("LeaderChange", self.content).leader_epoch
        return leader_epochs.get(self.partition, 0)

    @property
    def record_count(self) -> int:
        """Number of records, which is the number of offsets that the entry takes."""
        content = self.content
        return content.record_count if isinstance(content, BatchAppend) else 1

    @property
    def size_bytes(self) -> int:
        """Approximate size of the records in memory."""
        content = self.content
        return content.size_bytes if isinstance(content, BatchAppend) else 64


def batches_of(segment: StagedSegment) -> list[BatchAppend]:
    """Return the batches of a staged segment of records. It is read back, and stays staged."""
    producer, batches = segment.producer, []
    with ipc.open_file(segment.load()) as file:
        for number in range(file.num_record_batches):
            records = file.get_batch(number).replace_schema_metadata(RECORD_SCHEMA.metadata)
            batches.append(BatchAppend(records, producer))
            if producer is not None:
                sequence = sequence_after(producer.base_sequence, records.num_rows)
                producer = replace(producer, base_sequence=sequence)
    return batches


def entries_of_one_object(entries: Sequence[StripeEntry], waiting: Iterable[int]) -> list[int]:
    """Return which of the waiting entries one object may hold (`ConsecutiveBatches`).

    Args:
        entries: all entries of an append, in order.
        waiting: indexes of the entries that are not in the stripe and not refused, in order.

    Returns:
        Indexes of the entries, sorted by partition; at least one if an entry waits.
    """
    of_partition: dict[int, ConsecutiveBatches] = {}
    closed: set[int] = set()
    chosen = []
    for index in waiting:
        entry = entries[index]
        if entry.expected_end_offset is not None and entry.partition in of_partition:
            closed.add(entry.partition)  # those before it move the end, and others follow it
        if entry.partition in closed:
            continue
        consecutive = of_partition.setdefault(entry.partition, ConsecutiveBatches())
        content = entry.content
        if not isinstance(content, BatchAppend | EndTransactionMarker) or consecutive.accepts(
            content
        ):
            chosen.append(index)
    return sorted(chosen, key=lambda index: entries[index].partition)


def first_of_producers(entries: Sequence[StripeEntry], waiting: Iterable[int]) -> list[int]:
    """Return the waiting entries that are the first of their producer in their partition.

    The state decides these; entries behind them follow, or wait until these are decided. An entry
    that expects an offset is decided, too, when none of its partition is before it.
    """
    seen: set[tuple[int, int | None]] = set()
    partitions: set[int] = set()
    firsts = []
    for index in waiting:
        entry = entries[index]
        key = entry.partition, entry.producer_id
        is_next = entry.expected_end_offset is None or entry.partition not in partitions
        partitions.add(entry.partition)
        if entry.has_to_be_decided and key not in seen:
            seen.add(key)
            if is_next:
                firsts.append(index)
    return firsts
