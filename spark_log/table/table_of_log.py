"""`TableOfLog`: the answers of a topic's table to those who clean one of its logs."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log.log.clean import CompactionLimits
from spark_log.log.files import SegmentName
from spark_log.metadata import ROOT_BROKER_ID
from spark_log.table.committer import TableCommitter
from spark_log.table.free_names import is_needed, tombstone_limit
from spark_log.table.partition_table import PartitionTable, table_file


class TableOfLog:
    """The table of one replica's log (`spark_log.log.clean.LogTable`).

    Attributes:
        is_empty: whether no version of the table has rows of the log. Then nothing is asked for.
    """

    def __init__(
        self,
        committer: TableCommitter,
        partition: int,
        broker_id: int,
        *,
        file_names: Iterable[str] | None,
    ) -> None:
        """Return the table of a log; nothing is read.

        Args:
            committer: the committer of the topic's table.
            partition: the partition's number.
            broker_id: the broker that has the replica.
            file_names: the names of the files in the replica's directory, as a listing has shown
                them a moment ago; None if they are not known.
        """
        self._table = committer.table
        self._committer = committer
        self._partition = partition
        self._is_on_root = broker_id == ROOT_BROKER_ID
        self._config = committer.topic.config()
        self.is_empty = self.is_certainly_empty(file_names)
        self._asked: tuple[int, list[PartitionTable] | None] | None = None

    def is_certainly_empty(self, file_names: Iterable[str] | None) -> bool:
        """Return whether no version has rows of this log, as its files alone show.

        Args:
            file_names: the names of the log's files; None if they are not known.
        """
        # The files of the table are in the directory in the cluster's root.
        return (
            self._config.table_format == "none"
            and file_names is not None
            and self._is_on_root
            and not any(map(table_file, file_names))
        )

    def allows(self, name: SegmentName, now_us: int) -> bool:
        """Return whether the name of a Parquet segment may be freed (protocol B9, B10)."""
        if not self._is_on_root:
            return True  # the table has the files in the cluster's root alone
        if self._asked is None or self._asked[0] != now_us:
            # All names that are asked for at this time were spent before it.
            retention_ms = self._config.table_deleted_file_retention_ms
            self._asked = now_us, self._history(retention_ms, now_us)
        history = self._asked[1]
        return history is not None and not is_needed(name, history)

    def move_start(self, offset: int) -> None:
        """Move the table's start up to the log's (protocol B11)."""
        if self.is_empty:
            return
        known = self._table.known.partitions.get(self._partition)
        if known is not None and known.start >= offset:
            return
        self._committer.move_start(self._partition, offset)

    def compaction_limits(self, now_us: int) -> CompactionLimits:
        """Return what the table asks of a compaction (protocol B6, B13)."""
        if self.is_empty:
            return CompactionLimits()
        history = self._history(self._config.delete_retention_ms, now_us)
        limit = 0 if history is None else tombstone_limit(history)
        is_on = self._table.known.is_on or self._config.table_format != "none"
        return CompactionLimits(is_on, limit)

    def _history(self, past_ms: float, now_us: int) -> list[PartitionTable] | None:
        version = self._table.refresh()
        if version.is_outdated or self._partition not in version.partitions:
            return None if version.number >= 0 else []
        return self._table.history(self._partition, past_ms, now_us)
