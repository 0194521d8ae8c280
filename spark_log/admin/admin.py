"""`Admin` with groups: what `spark_log.Admin` is. No JVM, no server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from spark_log.admin.topic_admin import Admin as TopicAdmin
from spark_log.admin.topic_admin import limited
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.admin.group_admin import GroupAdmin
    from spark_log.admin.group_descriptions import (
        GroupDescription,
        GroupListing,
        GroupPartitionLag,
    )


class Admin(TopicAdmin):
    """Administers one cluster root: topics, their settings, offsets and records, and groups.

    Names follow Kafka's admin client, and kafka-python's. What changes metadata is one append to
    the metadata log: all of it is done, or nothing; so is a change of one group's positions. What
    is answered about topics can be had as Arrow tables, by the functions in
    `spark_log.admin.tables`.
    """

    _opened_groups: GroupAdmin | None = None

    def close(self) -> None:
        """Forget what was read. There is no connection to close."""
        super().close()
        self._opened_groups = None

    @limited
    def list_groups(self, *, states_filter: Collection[str] | None = None) -> list[GroupListing]:
        """List the groups that have members or positions, by their ids.

        Args:
            states_filter: only those in one of these states, in any case: ``Empty``, ``Stable``,
                ``Reconciling``.

        Raises:
            InvalidConfigurationError: there is no such state.
            StorageError: groups or positions cannot be read.
        """
        return self._groups.list_groups(states_filter)

    @limited
    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups: state, generation, members and what each has.

        Raises:
            GroupIdNotFoundError: one of them has neither members nor positions.
            StorageError: a group cannot be read.
        """
        return {group_id: self._groups.describe(group_id) for group_id in group_ids}

    @limited
    def group_lag(self, group_id: str) -> list[GroupPartitionLag]:
        """Tell how far a group is behind, in records and in time, in each of its partitions.

        Raises:
            GroupIdNotFoundError, StorageError: see `describe_groups`.
        """
        return self._groups.lag(self._groups.describe(group_id))

    @limited
    def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's positions.

        Args:
            group_id: which; one that does not exist has none.
            partitions: only in these; those without a position are left out.

        Raises:
            StorageError: they cannot be read.
        """
        return self._groups.offsets(group_id, partitions)

    @limited
    def list_consumer_group_offsets(
        self, group_specs: Mapping[str, Collection[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return positions of several groups: id → see `list_group_offsets` (KIP-709).

        Args:
            group_specs: group id → partitions that are wanted, None for all.

        Raises:
            StorageError: they cannot be read.
        """
        return {
            group_id: self._groups.offsets(group_id, partitions)
            for group_id, partitions in group_specs.items()
        }

    @limited
    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set positions of a group that has no members, all of them or none (KIP-396).

        Args:
            group_id: which; it need not exist.
            offsets: by partition, the next offset to read. Other partitions stay as they are.

        Raises:
            GroupNotEmptyError: it has members; nothing was changed.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was changed.
            UnknownOutcomeError: it may have been changed; to do it again is harmless.
            StorageError: nothing was changed.
        """
        self._groups.alter_offsets(group_id, offsets)

    @limited
    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Forget positions of a group, all of them or none (KIP-496).

        Args:
            group_id: which.
            partitions: where; no member may subscribe to one of their topics.

        Returns:
            Those that it had a position in.

        Raises:
            GroupIdNotFoundError: there is no such group.
            GroupSubscribedToTopicError: nothing was changed.
            UnknownOutcomeError: it may have been changed; to do it again is harmless.
            StorageError: nothing was changed.
        """
        return self._groups.delete_offsets(group_id, partitions)

    @limited
    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members: their positions are gone.

        All are checked before the first is deleted. Their generations go on from where they were,
        should anybody join them again.

        Raises:
            GroupIdNotFoundError, GroupNotEmptyError: one does not exist, or has members.
            UnknownOutcomeError, StorageError: some may be deleted; to do it again is harmless.
        """
        self._groups.delete_groups(group_ids)

    @limited
    def group_members(self, group_id: str) -> tuple[str, ...]:
        """Return the ids of a group's members; none of a group that does not exist.

        Raises:
            StorageError: the group cannot be read.
        """
        return self._groups.members(group_id)

    @limited
    def remove_group_members(self, group_id: str, member_ids: Collection[str]) -> None:
        """Let members go (KIP-571): what they had goes to others. One that is alive joins again.

        Raises:
            GroupIdNotFoundError: there is no such group.
            UnknownMemberIdError: one of them is not in it; nobody was removed.
            StorageError: they may still be members.
        """
        self._groups.remove_members(group_id, member_ids)

    @property
    def _groups(self) -> GroupAdmin:
        if self._opened_groups is None:
            from spark_log.admin.group_admin import GroupAdmin  # many never ask for groups

            self._opened_groups = GroupAdmin(self._cluster())
        return self._opened_groups
