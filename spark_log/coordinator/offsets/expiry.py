"""Expiry of committed offsets: those of groups that have been empty long enough (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.coordinator.group import Group
from spark_log.coordinator.offsets import commit_times
from spark_log.coordinator.offsets.commit_times import CommitTimes, RowId
from spark_log.coordinator.offsets.rows import CommittedOffset, PartitionKey
from spark_log.delta import DataFile, DataFiles
from spark_log.log import StateView
from spark_log.metadata import MetadataImage
from spark_log.record import int_scalar, text_array

_COLUMNS = ["group", "topic_id", "offset", "commit_timestamp"]


def expired_offsets(
    positions: Mapping[PartitionKey, CommittedOffset],
    view: StateView[Group],
    image: MetadataImage,
    before_us: int,
    times: CommitTimes,
) -> list[PartitionKey]:
    """Return the expired committed offsets of a group.

    - A group with members: offsets in topics that no member subscribes to, if committed before
      ``before_us``.
    - A group without members: all offsets, if the group has been empty since before ``before_us``
      and they were committed before then.
    - Offsets in a deleted topic expire at once.

    Args:
        positions: the committed offsets of the group.
        view: the state of the group.
        image: the metadata, not older than the offsets.
        before_us: the present storage time minus the retention.
        times: commit times of rows with wrong timestamps.
    """
    group = view.state
    empty_since_us = 0 if group.members else view.changed_us
    found = []
    for key, committed in positions.items():
        topic = image.find(key.topic)
        row = RowId(
            group.group_id,
            key.topic_id,
            key.partition,
            committed.generation,
            committed.commit_timestamp_us,
        )
        committed_us = times.get(row, committed.commit_timestamp_us + commit_times.TOLERANCE_US)
        if topic is None or topic.topic_id != key.topic_id:
            found.append(key)
        elif max(committed_us, empty_since_us) >= before_us:
            continue
        elif not group.members or key.topic not in group.topics:
            found.append(key)
    return found


def candidate_groups(
    files: DataFiles,
    present: list[DataFile],
    image: MetadataImage,
    before_us: int,
    times: CommitTimes,
) -> set[str]:
    """Return the groups that may have expired offsets; no other group has expired offsets.

    Reads four columns of the whole table, one row group at a time.

    Args:
        files: reads the files.
        present: the files of the table.
        image: the metadata, not older than the offsets.
        before_us: the present storage time minus the retention.
        times: commit times of rows with wrong timestamps.

    Raises:
        StorageError: the table cannot be read, or is damaged.
    """
    topic_ids = text_array([topic.topic_id for topic in image.topics()])
    found = {row.group for row, time_us in times.items() if time_us < before_us}
    before, zero = (int_scalar(value, pa.int64()) for value in (before_us, 0))
    for part in _parts(files, present):
        stamps = pc.cast(part.column("commit_timestamp"), pa.int64())
        is_gone = pc.invert(pc.is_in(part.column("topic_id"), topic_ids))
        is_old = pc.or_(pc.less(stamps, before), is_gone)
        is_wanted = pc.and_(is_old, pc.greater_equal(part.column("offset"), zero))
        found.update(pc.unique(part.filter(is_wanted).column("group")).to_pylist())
    return found


def _parts(files: DataFiles, present: list[DataFile]) -> Iterator[pa.Table]:
    for file in present:
        yield from files.parts(file, columns=_COLUMNS)
