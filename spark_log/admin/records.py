"""`Admin` methods for records: deletes them from the start of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.admin.offsets import check_by_partition
from spark_log.admin.types import DeletedRecords
from spark_log.errors import InvalidConfigurationError, OffsetOutOfRangeError
from spark_log.log import LogView
from spark_log.types import TopicPartition

ALL_RECORDS: Final = -1
"""The value instead of an offset that deletes up to the log's end, as in Kafka's requests."""


class RecordOperations(ClusterAccess):
    """Deletes records."""

    @limited
    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete all records before an offset (KIP-107).

        The records cannot be read after the call. One exception: a reader that listed the log
        before may still read them, for half of ``file.delete.delay.ms``. A cleaner deletes the
        files later. All in-sync replicas delete the records; one that cannot be reached leaves the
        in-sync replicas, and deletes them when it returns. All arguments are checked before the
        first change; if the storage fails after that, some partitions may be done. It is safe to
        repeat the call.

        Args:
            records_to_delete: partition → the offset that becomes its log start, up to the high
                watermark; -1 deletes all records before this. A partition that already starts
                later does not change.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            The log start offset of each partition after the call, the lowest of its in-sync
            replicas.

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was deleted.
            UnknownOutcomeError: whether the records of a partition were deleted is not known.
        """
        wanted = check_by_partition("records_to_delete", records_to_delete)
        for tp, offset in wanted.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise InvalidConfigurationError(
                    f"{tp}: {offset!r} is a {type(offset).__name__}; give the new first offset of "
                    f"the partition, a whole number, or -1 for its end"
                )
        image = self._cluster().image()
        logs = {tp: self._log(image, tp) for tp in wanted}

        def check(tp: TopicPartition) -> tuple[int, LogView]:
            view = logs[tp].observe()
            return _check_offset(view, wanted[tp], tp), view

        checked = dict(zip(logs, self._map_partitions(check, list(logs), image.topic), strict=True))

        def delete(tp: TopicPartition) -> DeletedRecords:
            return DeletedRecords(logs[tp].move_start(*checked[tp]))

        deleted = self._map_partitions(delete, list(logs), image.topic)
        return dict(zip(logs, deleted, strict=True))


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
