"""Lookups of offsets in partitions: by position and by time."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.admin.cluster_calls import map_partitions, open_log, poll_stripes
from spark_log.admin.validation import check_by_partition, check_isolation_level
from spark_log.cluster import Cluster
from spark_log.errors import InvalidTimestampError
from spark_log.log import IsolationLevel, PartitionLog, offset_of_max_timestamp
from spark_log.types import OffsetAndTimestamp, OffsetSpec, TopicPartition

_UNKNOWN = OffsetAndTimestamp(-1, -1, -1)
_MAX_MS = (2**63 - 1) // 1000


def list_offsets(
    cluster: Cluster,
    topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
    *,
    isolation_level: IsolationLevel,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return offset and timestamp for the spec of each partition (`Admin.list_offsets`)."""
    check_isolation_level(isolation_level)
    given = check_by_partition("topic_partition_specs", topic_partition_specs)
    specs = {tp: _check_spec(spec) for tp, spec in given.items()}
    image = cluster.image()
    logs = {tp: open_log(cluster, image, tp) for tp in specs}
    epochs = {tp: image.topic(tp.topic).partitions[tp.partition].leader_epoch for tp in specs}
    poll_stripes(cluster, {tp: image.topic(tp.topic) for tp in specs})
    return map_partitions(
        cluster,
        image,
        lambda tp: _list_offset(logs[tp], specs[tp], epochs[tp], isolation_level),
        list(specs),
    )


def _check_spec(spec: object) -> int:
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


def _list_offset(
    log: PartitionLog, spec: int, leader_epoch: int, isolation_level: IsolationLevel
) -> OffsetAndTimestamp:
    if log.stripe is not None:
        known_end, first_open = log.stripe.reader.known_end(log.files.partition)
        is_stable = isolation_level == "read_uncommitted" or first_open is None
        if spec == OffsetSpec.LATEST and is_stable:
            return OffsetAndTimestamp(known_end, -1, leader_epoch)
        view = log.observe_polled()
    else:  # the last segment may have the time
        view = log.observe(keeps_for_next_read=spec >= 0)
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
