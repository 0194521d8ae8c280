"""Where a reset puts a group: kafka-consumer-groups' scenarios, and one that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from spark_log.admin.admin import Admin
from spark_log.coordinator.offsets.table import OffsetsTable
from spark_log.errors import InvalidConfigurationError, NoOffsetForPartitionError
from spark_log.metadata import Cluster
from spark_log.types import OffsetSpec, TopicPartition

_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """New positions, and what is to be said about them.

    Attributes:
        offsets: by partition.
        notes: where it is not what was asked for.
    """

    offsets: Mapping[TopicPartition, int]
    notes: tuple[str, ...] = ()


class OffsetResetPlanner:
    """Works out new positions of one group; changes nothing."""

    def __init__(self, cluster: Cluster, admin: Admin, group_id: str) -> None:
        """Args: cluster, admin: of the root; group_id: which group."""
        self._admin = admin
        self._group_id = group_id
        self._table = OffsetsTable(cluster)
        self._image = cluster.image

    def committed(self) -> dict[TopicPartition, int]:
        """Return where the group is."""
        offsets = self._admin.list_group_offsets(self._group_id)
        return {tp: position.offset for tp, position in offsets.items()}

    def to_spec(self, partitions: Collection[TopicPartition], spec: int) -> ResetPlan:
        """Return an end of each partition, or the first offset at or after a time in milliseconds.

        Where there is none so late it is the log's end.
        """
        found = self._admin.list_offsets(dict.fromkeys(partitions, spec))
        late = [tp for tp, each in found.items() if each.offset < 0]
        ends = self._admin.list_offsets(dict.fromkeys(late, OffsetSpec.LATEST))
        return ResetPlan({tp: (ends.get(tp) or each).offset for tp, each in found.items()})

    def to_offsets(self, wanted: Mapping[TopicPartition, int]) -> ResetPlan:
        """Return given offsets, or what is nearest to them in the log."""
        starts = self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        offsets, notes = {}, []
        for tp, offset in wanted.items():
            least, most = starts[tp].offset, ends[tp].offset
            offsets[tp] = min(max(offset, least), most)
            if offset < least:
                notes.append(f"{tp}: {offset} is before the log's start; taking {least}")
            elif offset > most:
                notes.append(f"{tp}: {offset} is behind the log's end; taking {most}")
        return ResetPlan(offsets, tuple(notes))

    def shifted(self, partitions: Collection[TopicPartition], by: int) -> ResetPlan:
        """Return where the group is, and so many records further on, or back.

        Raises:
            NoOffsetForPartitionError: it has no position in one of them.
        """
        committed = self.committed()
        missing = sorted(set(partitions) - committed.keys())
        if missing:
            raise NoOffsetForPartitionError(
                f"group {self._group_id!r} has no position in {missing[0]} to shift; "
                f"give --to-offset, or another --topic"
            )
        return self.to_offsets({tp: committed[tp] + by for tp in partitions})

    def to_current(self, partitions: Collection[TopicPartition]) -> ResetPlan:
        """Return where the group is, and the log's end where it has no position."""
        committed = self.committed()
        missing = [tp for tp in partitions if tp not in committed]
        ends = self._admin.list_offsets(dict.fromkeys(missing, OffsetSpec.LATEST))
        return ResetPlan(
            {tp: committed[tp] if tp in committed else ends[tp].offset for tp in partitions}
        )

    def to_committed_at(
        self, partitions: Collection[TopicPartition] | None, time_us: int
    ) -> ResetPlan:
        """Return where the group was at a time: what it had committed up to then.

        Args:
            partitions: None for all that it had a position in then.
            time_us: by the clocks of those who committed.

        Raises:
            InvalidConfigurationError: nobody can tell: it is longer ago than the table keeps; says
                which time is the oldest.
            NoOffsetForPartitionError: it had no position then.
        """
        retention_us = self._table.retention_us()
        oldest_us = self._table.storage_time_us() - retention_us
        if time_us < oldest_us:
            raise InvalidConfigurationError(
                f"what was committed is kept for {retention_us // _MINUTE_US} minutes "
                f"(offsets.retention.minutes of the offsets table): {_text(time_us)} is too long "
                f"ago; the oldest time to go back to is {_text(_in_a_minute(oldest_us))}"
            )
        image = self._image()
        then = {
            TopicPartition(key.topic, key.partition): committed.offset
            for key, committed in self._table.positions_at(self._group_id, time_us).items()
            if (topic := image.find(key.topic)) and topic.topic_id == key.topic_id
        }
        wanted = sorted(then) if partitions is None else list(partitions)
        missing = [tp for tp in wanted if tp not in then]
        if len(missing) == len(wanted):
            raise NoOffsetForPartitionError(
                f"group {self._group_id!r} had no position at that time"
                + (f" in {missing[0]}" if missing else "")
            )
        found = self.to_offsets({tp: then[tp] for tp in wanted if tp in then})
        notes = [f"{tp}: no position at that time; it stays as it is" for tp in missing]
        return ResetPlan(found.offsets, (*found.notes, *notes))


def _in_a_minute(time_us: int) -> int:
    """Return a full minute that is still not too long ago when somebody has read and typed it."""
    return (time_us // _MINUTE_US + 2) * _MINUTE_US


def _text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
