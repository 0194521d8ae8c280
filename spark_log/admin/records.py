"""Deletion of records from the start of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_log.admin.cluster_calls import map_partitions, open_log, poll_stripes
from spark_log.admin.validation import check_by_partition
from spark_log.cluster import Cluster, TopicTables
from spark_log.errors import InvalidConfigurationError, OffsetOutOfRangeError
from spark_log.log import LogView
from spark_log.types import DeletedRecords, TopicPartition

ALL_RECORDS: Final = -1
"""The value instead of an offset that deletes up to the log's end, as in Kafka's requests."""


def delete_records(
    cluster: Cluster, records_to_delete: Mapping[TopicPartition, int]
) -> dict[TopicPartition, DeletedRecords]:
    """Delete the records before an offset in each partition, after all arguments were checked."""
    wanted = check_by_partition("records_to_delete", records_to_delete)
    for tp, offset in wanted.items():
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise InvalidConfigurationError(
                f"{tp}: {offset!r} is a {type(offset).__name__}; give the new first offset of "
                f"the partition, a whole number, or -1 for its end"
            )
    image = cluster.image()
    logs = {tp: open_log(cluster, image, tp) for tp in wanted}

    poll_stripes(cluster, {tp: image.topic(tp.topic) for tp in wanted})

    def check(tp: TopicPartition) -> tuple[int, LogView]:
        view = logs[tp].observe_polled()
        return _check_offset(view, wanted[tp], tp), view

    checked = map_partitions(cluster, image, check, list(logs))

    tables = TopicTables(cluster)

    def delete(tp: TopicPartition) -> DeletedRecords:
        start = logs[tp].move_start(*checked[tp])
        tables.move_start(image, image.topic(tp.topic), tp.partition, start)
        return DeletedRecords(start)

    return map_partitions(cluster, image, delete, list(logs))


def _check_offset(view: LogView, offset: int, tp: TopicPartition) -> int:
    """Return the offset before which records are to be deleted.

    Raises:
        OffsetOutOfRangeError: it is negative, or larger than the log end offset.
    """
    end = view.log_end_offset
    if offset == ALL_RECORDS:
        return end
    if 0 <= offset <= end:
        return offset
    raise OffsetOutOfRangeError(
        f"{tp}: records cannot be deleted before offset {offset}; give 0 to {end}, or "
        f"{ALL_RECORDS} for all records",
        offset=offset,
        log_start_offset=view.log_start_offset,
        log_end_offset=end,
    )
