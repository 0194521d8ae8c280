"""Commits without membership, for manually assigned partitions and streaming queries' progress.

Such a commit is made in the group's current generation. It is refused while the group has members,
as in Kafka, because the members do not know of other readers. If a member joins after the group was
read, it has a higher generation. Either it starts after the commit and continues from there, or the
table refuses the commit and the group is read again (docs/adr/0010).

The rules: (protocol G12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_log.cluster import Cluster
from spark_log.coordinator.group import GroupLog
from spark_log.coordinator.offsets.table import OffsetsTable
from spark_log.errors import CommitFailedError, IllegalGenerationError
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import shown

_MAX_TRIES = 20


class StandaloneCommits:
    """Commits offsets of one group without membership. For one thread at a time."""

    def __init__(self, cluster: Cluster, table: OffsetsTable, group_id: str) -> None:
        """Return the commits of a group; nothing is read yet.

        Args:
            cluster: the opened root.
            table: the root's offsets table.
            group_id: the group's id.
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
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets, all of them or none; durable on return.

        If the group did not change, checking that costs one lookup of a file name.

        Args:
            offsets: partition → the next offset to read.
            topic_ids: topic → id of the topic that was read, if the caller knows it.
            timeout_s: the maximum time of retries after other commits won the race; None for a
                minute.
            check: called before each try; raises to refuse the commit (`OffsetsTable.commit`).

        Raises:
            CommitFailedError: the group has members, or other commits kept coming first; nothing
                was committed.
            UnknownTopicOrPartitionError: a topic does not exist, or was created again; nothing was
                committed.
            UnknownOutcomeError: the offsets may be committed; it is safe to commit them again.
            StorageError: the group cannot be read, or nothing was committed.
        """
        if not offsets:
            return
        refused: IllegalGenerationError | None = None
        for _ in range(_MAX_TRIES):
            # Read the fence first: a member that joins later has a higher generation.
            fence = self._table.generation(self._group_id)
            generation = max(fence, self._empty_generation())
            try:
                self._table.commit(
                    self._group_id,
                    offsets,
                    generation=generation,
                    timeout_s=timeout_s,
                    topic_ids=topic_ids,
                    check=check,
                )
            except IllegalGenerationError as error:
                refused = error
            else:
                return
        raise CommitFailedError(
            f"group {self._group_id!r} changes too fast: its generation rose {_MAX_TRIES} times "
            f"during the commit; nothing was committed, try again"
        ) from refused

    def _empty_generation(self) -> int:
        """Return the group's generation; raise if it has members."""
        self._log.replay()
        group = self._log.state
        if group.members:
            raise CommitFailedError(
                f"group {self._group_id!r} has members, {shown(group.members)}: "
                f"a consumer with assigned partitions cannot commit in it. Subscribe instead of "
                f"assigning partitions, or take another group id"
            )
        return group.generation
