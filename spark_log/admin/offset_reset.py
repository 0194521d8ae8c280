"""New offsets for a reset: the scenarios of kafka-consumer-groups, and ``--to-committed-at``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTimestampError,
    NoOffsetForPartitionError,
)
from spark_log.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
)

_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """New offsets of a group.

    Attributes:
        offsets: partition → new offset.
        notes: one message for each partition that gets another offset than the user asked for.
    """

    offsets: Mapping[TopicPartition, int]
    notes: tuple[str, ...] = ()


class _OffsetLookups(Protocol):
    """The methods of `Admin` that a plan needs."""

    def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def list_offsets(
        self, topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]: ...


class OffsetResetPlanner:
    """Computes new offsets of one group; changes nothing."""

    def __init__(self, cluster: Cluster, admin: _OffsetLookups, group_id: str) -> None:
        """Return a planner for one group."""
        self._admin = admin
        self._group_id = group_id
        self._table = OffsetsTable(cluster)
        self._image = cluster.image

    def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition."""
        offsets = self._admin.list_group_offsets(self._group_id)
        return {tp: position.offset for tp, position in offsets.items()}

    def to_spec(self, partitions: Collection[TopicPartition], spec: int) -> ResetPlan:
        """Plan the offsets of one `OffsetSpec`, or of a time in milliseconds since the epoch.

        A partition without a record at or after the time gets its log end offset.
        """
        return ResetPlan(self._look_up(dict.fromkeys(partitions, spec)))

    def to_specs(
        self, specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int]
    ) -> ResetPlan:
        """Plan the values that `Admin.reset_group_offsets` accepts: specs, times, plain offsets.

        Raises:
            InvalidTimestampError: an `OffsetTimestamp` is negative.
            InvalidConfigurationError: a value is not a whole number.
        """
        looked_up: dict[TopicPartition, int] = {}
        given: dict[TopicPartition, int] = {}
        for tp, spec in specs.items():
            if isinstance(spec, OffsetTimestamp):
                looked_up[tp] = _check_timestamp(spec)
            elif isinstance(spec, OffsetSpec):
                looked_up[tp] = spec
            elif isinstance(spec, int) and not isinstance(spec, bool):
                given[tp] = spec
            else:
                raise InvalidConfigurationError(
                    f"{tp}: {spec!r} is a {type(spec).__name__}; give an OffsetSpec, an "
                    f"OffsetTimestamp, or an offset"
                )
        planned = self.to_offsets(given)
        return ResetPlan({**self._look_up(looked_up), **planned.offsets}, planned.notes)

    def to_offsets(self, wanted: Mapping[TopicPartition, int]) -> ResetPlan:
        """Plan given offsets; one outside of the log becomes the log start or log end offset."""
        starts = self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = self._admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        offsets, notes = {}, []
        for tp, offset in wanted.items():
            least, most = starts[tp].offset, ends[tp].offset
            offsets[tp] = min(max(offset, least), most)
            if offset < least:
                notes.append(f"{tp}: {offset} is before the log start; using {least}")
            elif offset > most:
                notes.append(f"{tp}: {offset} is after the log end; using {most}")
        return ResetPlan(offsets, tuple(notes))

    def shifted(self, partitions: Collection[TopicPartition], by: int) -> ResetPlan:
        """Plan the committed offsets plus ``by``, which may be negative.

        Raises:
            NoOffsetForPartitionError: the group has no committed offset in one of the partitions.
        """
        committed = self.committed()
        missing = sorted(set(partitions) - committed.keys())
        if missing:
            raise NoOffsetForPartitionError(
                f"group {self._group_id!r} has no committed offset in {missing[0]} to shift; "
                f"give --to-offset, or another --topic"
            )
        return self.to_offsets({tp: committed[tp] + by for tp in partitions})

    def to_current(self, partitions: Collection[TopicPartition]) -> ResetPlan:
        """Plan the committed offsets; the log end offset for partitions without one."""
        committed = self.committed()
        missing = [tp for tp in partitions if tp not in committed]
        ends = self._admin.list_offsets(dict.fromkeys(missing, OffsetSpec.LATEST))
        return ResetPlan(
            {tp: committed[tp] if tp in committed else ends[tp].offset for tp in partitions}
        )

    def to_committed_at(
        self, partitions: Collection[TopicPartition] | None, time_us: int
    ) -> ResetPlan:
        """Plan the offsets that were committed at a time.

        Args:
            partitions: the partitions; None for all that had a committed offset at that time.
            time_us: the time, by the clocks of the processes that committed.

        Raises:
            InvalidConfigurationError: the time is longer ago than the table's retention; the
                message gives the oldest possible time.
            NoOffsetForPartitionError: the group had no committed offset at that time.
        """
        retention_us = self._table.retention_us()
        oldest_us = self._table.storage_time_us() - retention_us
        if time_us < oldest_us:
            raise InvalidConfigurationError(
                f"committed offsets are kept for {retention_us // _MINUTE_US} minutes "
                f"(offsets.retention.minutes of the offsets table): {_text(time_us)} is too long "
                f"ago; the oldest time to go back to is {_text(_in_a_minute(oldest_us))}"
            )
        image = self._image()
        then = {
            TopicPartition(key.topic, key.partition): committed.offset
            for key, committed in self._table.committed_offsets_at(self._group_id, time_us).items()
            if (topic := image.find(key.topic)) and topic.topic_id == key.topic_id
        }
        wanted = sorted(then) if partitions is None else list(partitions)
        missing = [tp for tp in wanted if tp not in then]
        if len(missing) == len(wanted):
            raise NoOffsetForPartitionError(
                f"group {self._group_id!r} had no committed offset at that time"
                + (f" in {missing[0]}" if missing else "")
            )
        found = self.to_offsets({tp: then[tp] for tp in wanted if tp in then})
        notes = [f"{tp}: no committed offset at that time; not changed" for tp in missing]
        return ResetPlan(found.offsets, (*found.notes, *notes))

    def _look_up(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset for each spec; the log end offset if there is no such record."""
        found = self._admin.list_offsets(specs)
        missing = [tp for tp, each in found.items() if each.offset < 0]
        ends = self._admin.list_offsets(dict.fromkeys(missing, OffsetSpec.LATEST))
        return {tp: (ends.get(tp) or each).offset for tp, each in found.items()}


def _check_timestamp(spec: OffsetTimestamp) -> int:
    """Return a time after checking it: a negative one would be taken for an `OffsetSpec`."""
    if spec < 0:
        raise InvalidTimestampError(
            f"{spec!r} is negative; give milliseconds since the epoch", timestamp_us=spec * 1000
        )
    return int(spec)


def _in_a_minute(time_us: int) -> int:
    """Return a full minute that is still within the retention a minute or so later."""
    return (time_us // _MINUTE_US + 2) * _MINUTE_US


def _text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
