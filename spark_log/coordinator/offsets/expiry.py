"""Which positions expire: those of groups that have been empty for long enough (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.coordinator.group.view import GroupView
from spark_log.coordinator.offsets import commit_times
from spark_log.coordinator.offsets.commit_times import CommitTimes, RowId
from spark_log.coordinator.offsets.rows import CommittedOffset, PartitionKey
from spark_log.delta.files import DataFile, DataFiles
from spark_log.metadata.image import MetadataImage

_COLUMNS = ["group", "topic_id", "offset", "commit_timestamp"]


def expired(
    positions: Mapping[PartitionKey, CommittedOffset],
    view: GroupView,
    image: MetadataImage,
    before_us: int,
    times: CommitTimes,
) -> list[PartitionKey]:
    """Return which of a group's positions are to be forgotten.

    With members: those in topics to which none subscribes, when they were committed before
    ``before_us``. Without: all, when the group has been empty since before then. A group that never
    had members: each one that was committed before then. And whose topic is gone, at once.

    Args:
        positions: of the group.
        view: of the group's log.
        image: the metadata, no older than the positions.
        before_us: what is older than that, by the storage's time, is old.
        times: when positions were committed whose stamps are wrong.
    """
    group = view.group
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


def candidates(
    files: DataFiles,
    present: list[DataFile],
    image: MetadataImage,
    before_us: int,
    times: CommitTimes,
) -> set[str]:
    """Return the groups that may have positions to forget: no others have any.

    Reads four columns of the whole table, a row group at a time. Args: see `expired`.

    Raises:
        StorageError: the table cannot be read, or is damaged.
    """
    topic_ids = pa.array([topic.topic_id for topic in image.topics()], pa.string())
    found = {row.group for row, time_us in times.items() if time_us < before_us}
    for part in _parts(files, present):
        stamps = pc.cast(part.column("commit_timestamp"), pa.int64())
        is_gone = pc.invert(pc.is_in(part.column("topic_id"), topic_ids))
        is_old = pc.or_(pc.less(stamps, before_us), is_gone)
        is_wanted = pc.and_(is_old, pc.greater_equal(part.column("offset"), 0))
        found.update(pc.unique(part.filter(is_wanted).column("group")).to_pylist())
    return found


def _parts(files: DataFiles, present: list[DataFile]) -> Iterator[pa.Table]:
    for file in present:
        yield from files.parts(file, columns=_COLUMNS)
