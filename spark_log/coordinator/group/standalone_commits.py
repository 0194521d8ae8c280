"""Commits of who is no member: of partitions assigned by hand, of a streaming query's progress.

They take the group's current generation, and are refused while the group has members, as in Kafka:
its members share the partitions, and know of nobody else. A member that joins between the look at
the group and the commit has a higher generation: either it begins after the commit, and goes on
from there, or the table refuses the commit, and the group is looked at again (docs/adr/0010).
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.offsets.table import OffsetsTable
from spark_log.errors import CommitFailedError, IllegalGenerationError
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

_MAX_TRIES = 20
_MEMBERS_SHOWN = 3


class StandaloneCommits:
    """Commits positions of one group in nobody's name. For one thread at a time."""

    def __init__(self, cluster: Cluster, table: OffsetsTable, group_id: str) -> None:
        """Get ready; touches nothing.

        Args:
            cluster: the opened root.
            table: its offsets.
            group_id: the group's.
        """
        self._table = table
        self._group_id = group_id
        self._log = GroupLog(cluster.store, group_id, cluster.clock)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit positions, all of them or none; durable on return.

        Where the group is as it was, finding that out costs a look for a file's name.

        Args:
            offsets: by partition, the next offset to read.
            topic_ids: of the topics that they are in, where the caller knows them.
            timeout_s: see `OffsetsTable.commit`.

        Raises:
            CommitFailedError: the group has members, or other commits kept coming first; nothing
                was committed.
            UnknownTopicOrPartitionError, UnknownOutcomeError, StorageError: see
                `OffsetsTable.commit`; or the group cannot be read.
        """
        if not offsets:
            return
        refused: IllegalGenerationError | None = None
        for _ in range(_MAX_TRIES):
            # The fence first: who joins after the look at the group has a higher generation.
            fence = self._table.generation(self._group_id)
            generation = max(fence, self._empty_generation())
            try:
                self._table.commit(
                    self._group_id,
                    offsets,
                    generation=generation,
                    timeout_s=timeout_s,
                    topic_ids=topic_ids,
                )
            except IllegalGenerationError as error:
                refused = error
            else:
                return
        raise CommitFailedError(
            f"group {self._group_id!r} changes so fast that no commit in it came through"
        ) from refused

    def _empty_generation(self) -> int:
        """Return the generation of a group that has no members now."""
        self._log.replay()
        group = self._log.group
        if group.members:
            names = list(group.members)
            more = ", …" if len(names) > _MEMBERS_SHOWN else ""
            raise CommitFailedError(
                f"group {self._group_id!r} has members, {', '.join(names[:_MEMBERS_SHOWN])}{more}, "
                f"who share its partitions: who is none commits nothing in its name. Subscribe in "
                f"place of assigning partitions, or take another group id"
            )
        return group.generation
