"""Offsets of partitions: looked up by place and by time, and checked before records are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from spark_log.errors import InvalidConfigurationError, InvalidTimestampError, OffsetOutOfRangeError
from spark_log.log import LogView, PartitionLog
from spark_log.log.segment.max_timestamp import offset_of_max_timestamp
from spark_log.types import OffsetAndTimestamp, OffsetSpec, TopicPartition

_Of = TypeVar("_Of")

ALL_RECORDS = -1
"""Instead of an offset to delete before: the log's end, as in Kafka's requests."""

_UNKNOWN = OffsetAndTimestamp(-1, -1, -1)
_MAX_MS = (2**63 - 1) // 1000


def list_offset(log: PartitionLog, spec: int, leader_epoch: int) -> OffsetAndTimestamp:
    """Return the offset that a spec means in a partition; see `Admin.list_offsets`."""
    view = log.observe()
    if spec == OffsetSpec.EARLIEST:
        return OffsetAndTimestamp(view.log_start_offset, -1, leader_epoch)
    if spec == OffsetSpec.LATEST:
        return OffsetAndTimestamp(view.log_end_offset, -1, leader_epoch)
    if spec == OffsetSpec.MAX_TIMESTAMP:
        found = offset_of_max_timestamp(log, view)
    else:
        found = log.offset_for_time(spec * 1000, view)
    if found is None:
        return _UNKNOWN
    offset, timestamp_us = found
    return OffsetAndTimestamp(offset, timestamp_us // 1000, leader_epoch)


def checked_by_partition(
    name: str, given: Mapping[TopicPartition, _Of]
) -> dict[TopicPartition, _Of]:
    """Return what was given by partition.

    Raises:
        InvalidConfigurationError: it is no dict, or has other keys.
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
    """Return what is asked for: an `OffsetSpec`, or milliseconds since the epoch.

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
            f"{spec} is no time to look up; give milliseconds since the epoch, or {specs}",
            timestamp_us=spec * 1000,
        )
    return int(spec)


def offset_to_keep(view: LogView, offset: int, where: str) -> int:
    """Return the offset before which records are to be deleted.

    Raises:
        OffsetOutOfRangeError: it is negative or lies behind the log's end.
    """
    end = view.log_end_offset
    if offset == ALL_RECORDS:
        return end
    if 0 <= offset <= end:
        return offset
    raise OffsetOutOfRangeError(
        f"{where}: records cannot be deleted before offset {offset}; give 0 to {end}, or "
        f"{ALL_RECORDS} for all there are",
        offset=offset,
        log_start_offset=view.log_start_offset,
        log_end_offset=end,
    )
