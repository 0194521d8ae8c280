"""`Admin` methods for offsets of partitions: lookups by position and by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, get_args

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.errors import InvalidConfigurationError, InvalidTimestampError
from spark_log.log import IsolationLevel, PartitionLog, offset_of_max_timestamp
from spark_log.types import OffsetAndTimestamp, OffsetSpec, TopicPartition

_Value = TypeVar("_Value")

_UNKNOWN = OffsetAndTimestamp(-1, -1, -1)
_MAX_MS = (2**63 - 1) // 1000


class OffsetOperations(ClusterAccess):
    """Looks up offsets."""

    @limited
    def list_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets (``Admin.listOffsets``).

        Args:
            topic_partition_specs: partition → ``OffsetSpec.EARLIEST``, ``LATEST`` or
                ``MAX_TIMESTAMP`` (the first record with the largest timestamp, KIP-734), or a time
                in milliseconds since the epoch: the first record at or after it, in offset order.
            isolation_level: with ``read_committed``, ``LATEST`` is the last stable offset, and no
                record at or after it is found by its time (``ListOffsetsOptions``).
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            Offset and timestamp of each partition; the offset is -1 if there is no such record.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            InvalidTimestampError: a time is negative, too large, or not a whole number.
            InvalidConfigurationError: the argument is not a dict with `TopicPartition` keys, or the
                isolation level is unknown.
        """
        check_isolation_level(isolation_level)
        given = check_by_partition("topic_partition_specs", topic_partition_specs)
        specs = {tp: check_spec(spec) for tp, spec in given.items()}
        image = self._cluster().image()
        logs = {tp: self._log(image, tp) for tp in specs}
        epochs = {tp: image.topic(tp.topic).partitions[tp.partition].leader_epoch for tp in specs}
        found = self._map_partitions(
            lambda tp: _list_offset(logs[tp], specs[tp], epochs[tp], isolation_level),
            list(specs),
            image.topic,
        )
        return dict(zip(specs, found, strict=True))

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets: `list_offsets` under the name that kafka-python 3 gives it.

        Args:
            topic_partition_specs: partition → `OffsetSpec`, or milliseconds since the epoch.
            isolation_level: the isolation level; with ``read_committed``, only offsets up to the
                last stable offset are returned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            Offset and timestamp of each partition; the offset is -1 if there is no such record.

        Raises:
            UnknownTopicOrPartitionError, InvalidTimestampError, InvalidConfigurationError: See
                `list_offsets`.
        """
        return self.list_offsets(
            topic_partition_specs, isolation_level=isolation_level, timeout_ms=timeout_ms
        )


def check_by_partition(
    name: str, given: Mapping[TopicPartition, _Value]
) -> dict[TopicPartition, _Value]:
    """Return an argument that must be a dict with partitions as keys; plain tuples are accepted.

    Raises:
        InvalidConfigurationError: it is not a dict, or has other keys.
    """
    example = "{TopicPartition('topic', 0): …}"
    if not isinstance(given, Mapping):
        raise InvalidConfigurationError(
            f"{name} is a {type(given).__name__}; give a dict by partition, such as {example}"
        )
    for key in given:
        if not (isinstance(key, tuple) and list(map(type, key)) == [str, int]):
            raise InvalidConfigurationError(
                f"{name} has the key {key!r}; give a TopicPartition, such as {example}"
            )
    return {TopicPartition(*key): each for key, each in given.items()}


def check_spec(spec: object) -> int:
    """Return an offset spec: an `OffsetSpec`, or milliseconds since the epoch.

    Raises:
        InvalidTimestampError: it is neither.
    """
    if not isinstance(spec, int) or isinstance(spec, bool):
        word = str(spec).upper().replace("-", "_")
        hint = f"did you mean OffsetSpec.{word}?" if word in OffsetSpec.__members__ else ""
        raise InvalidTimestampError(
            f"{spec!r} is a {type(spec).__name__}; expected an OffsetSpec, or milliseconds since "
            f"the epoch as a whole number{'; ' if hint else ''}{hint}"
        )
    if spec not in tuple(OffsetSpec) and not 0 <= spec <= _MAX_MS:
        specs = ", ".join(f"{each.value} ({each.name})" for each in OffsetSpec)
        raise InvalidTimestampError(
            f"{spec} is not a time to look up; give milliseconds since the epoch, or {specs}",
            timestamp_us=spec * 1000,
        )
    return int(spec)


def check_isolation_level(given: object) -> None:
    """Check an argument ``isolation_level``.

    Raises:
        InvalidConfigurationError: it is unknown.
    """
    if given not in get_args(IsolationLevel):
        raise InvalidConfigurationError(
            f"isolation_level is {given!r}; give {' or '.join(map(repr, get_args(IsolationLevel)))}"
        )


def _list_offset(
    log: PartitionLog, spec: int, leader_epoch: int, isolation_level: IsolationLevel
) -> OffsetAndTimestamp:
    view = log.observe(reads_on=spec >= 0)  # the last segment may have the time
    if spec == OffsetSpec.EARLIEST:
        return OffsetAndTimestamp(view.log_start_offset, -1, leader_epoch)
    end = log.end_offset(view, isolation_level=isolation_level)
    if spec == OffsetSpec.LATEST:
        return OffsetAndTimestamp(end, -1, leader_epoch)
    if spec == OffsetSpec.MAX_TIMESTAMP:
        found = offset_of_max_timestamp(log, view)
    else:
        found = log.offset_for_time(spec * 1000, view)
    if found is None or found[0] >= end:
        return _UNKNOWN
    offset, timestamp_us = found
    return OffsetAndTimestamp(offset, timestamp_us // 1000, leader_epoch)
