"""`Admin` methods for consumer groups: lists, describes, changes and deletes groups and offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from spark_log.admin.cluster_access import limited
from spark_log.admin.offsets import OffsetOperations, check_by_partition, check_isolation_level
from spark_log.log import IsolationLevel
from spark_log.storage import map_requests
from spark_log.types import OffsetAndMetadata, OffsetSpec, OffsetTimestamp, TopicPartition

if TYPE_CHECKING:
    from spark_log.admin.group_manager import GroupManager
    from spark_log.admin.types import GroupDescription, GroupListing, GroupPartitionLag


class GroupOperations(OffsetOperations):
    """Lists, describes, changes and deletes groups and their committed offsets."""

    _opened_groups: GroupManager | None = None

    def close(self) -> None:
        """Drop the metadata and groups that were read. There is no connection to close."""
        super().close()
        self._opened_groups = None

    @limited
    def list_groups(self, *, states_filter: Collection[str] | None = None) -> list[GroupListing]:
        """List the groups that have members or committed offsets, sorted by id.

        Args:
            states_filter: the states of the groups to return, in upper or lower case: ``Empty``,
                ``Stable``, ``Reconciling``; None for all.

        Raises:
            InvalidConfigurationError: a state is not known.
            StorageError: groups or offsets cannot be read.
        """
        return self._groups.list_groups(states_filter)

    @limited
    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups: state, generation, members and their assignments.

        Raises:
            GroupIdNotFoundError: a group has neither members nor committed offsets.
            StorageError: a group cannot be read.
        """
        return self._describe_all(group_ids)

    def group_lag(
        self, group_id: str, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[GroupPartitionLag]:
        """Return the lag of a group, in records and in time, for each of its partitions.

        Args:
            group_id: the group's id.
            isolation_level: the isolation level; with ``read_committed``, the lag ends at the last
                stable offset.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            InvalidConfigurationError: the isolation level is unknown.
            StorageError: the group cannot be read.
        """
        return self.group_lags([group_id], isolation_level=isolation_level)[group_id]

    @limited
    def group_lags(
        self,
        group_ids: Iterable[str],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[str, list[GroupPartitionLag]]:
        """Return the lag of several groups as one cut, by group id.

        The committed offsets of all groups are read before the end of any partition, and the end of
        each partition is read once. The lags of two groups can therefore be compared, unlike the
        results of `list_group_offsets` and `list_offsets`. A lag counts the offsets that can be
        read, and is never negative; offsets that were deleted unread are counted separately
        (`GroupPartitionLag.deleted`).

        Args:
            group_ids: the ids of the groups.
            isolation_level: the isolation level; with ``read_committed``, the lag ends at the last
                stable offset.

        Raises:
            GroupIdNotFoundError: a group has neither members nor committed offsets.
            InvalidConfigurationError: the isolation level is unknown.
            StorageError: a group or a partition cannot be read.
        """
        check_isolation_level(isolation_level)
        described = self._describe_all(group_ids)
        return self._groups.lags(described.values(), isolation_level)

    @limited
    def list_group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group.

        Args:
            group_id: the group's id; a group that does not exist has no offsets.
            partitions: the partitions to return; those without a committed offset are left out.
                None for all.
            require_stable: whether to refuse offsets that an open transaction may replace, and to
                include the offsets of decided transactions (KIP-447).

        Raises:
            UnstableOffsetCommitError: with ``require_stable``, a transaction is not decided; call
                again.
            StorageError: the offsets cannot be read.
        """
        return self._groups.offsets(group_id, partitions, require_stable=require_stable)

    @limited
    def list_consumer_group_offsets(
        self,
        group_specs: Mapping[str, Collection[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of several groups, by group id (KIP-709).

        Args:
            group_specs: group id → partitions to return, None for all. A group that does not exist
                has no offsets; partitions without a committed offset are left out.
            require_stable: whether to refuse offsets that an open transaction may replace, and to
                include the offsets of decided transactions (KIP-447).

        Raises:
            UnstableOffsetCommitError: with ``require_stable``, a transaction is not decided; call
                again.
            StorageError: the offsets cannot be read.
        """
        return {
            group_id: self._groups.offsets(group_id, partitions, require_stable=require_stable)
            for group_id, partitions in group_specs.items()
        }

    @limited
    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set committed offsets of a group without members, all of them or none (KIP-396).

        Args:
            group_id: the group; it need not exist.
            offsets: partition → the next offset to read. Other partitions keep their offsets.

        Raises:
            GroupNotEmptyError: the group has members; nothing was changed.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was changed.
            UnknownOutcomeError: the offsets may have been changed; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        self._groups.alter_offsets(group_id, offsets)

    @limited
    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Reset committed offsets of a group without members, all of them or none.

        Args:
            group_id: the group; it need not exist.
            offset_specs: partition → an `OffsetSpec`, an `OffsetTimestamp` (the first record at or
                after that time; the log end offset if there is none), or an offset. An offset
                outside of the log becomes the log start or log end offset.

        Returns:
            Partition → the offset that was committed.

        Raises:
            GroupNotEmptyError: the group has members; nothing was changed.
            UnknownTopicOrPartitionError, InvalidTimestampError, InvalidConfigurationError: nothing
                was changed.
            UnknownOutcomeError: the offsets may have been changed; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        from spark_log.admin.offset_reset import OffsetResetPlanner  # it imports pyarrow.parquet

        specs = check_by_partition("offset_specs", offset_specs)
        plan = OffsetResetPlanner(self._cluster(), self, group_id).to_specs(specs)
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in plan.offsets.items()}
        self._groups.alter_offsets(group_id, offsets)
        return offsets

    @limited
    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Delete committed offsets of a group, all of them or none (KIP-496).

        Args:
            group_id: the group.
            partitions: the partitions; no member may subscribe to one of their topics.

        Returns:
            The partitions that had a committed offset.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            GroupSubscribedToTopicError: nothing was changed.
            UnknownOutcomeError: the offsets may have been deleted; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        return self._groups.delete_offsets(group_id, partitions)

    @limited
    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, with their committed offsets.

        All groups are checked before the first is deleted. If a consumer joins a deleted group
        again, its generations continue from the last one.

        Raises:
            GroupIdNotFoundError, GroupNotEmptyError: a group does not exist, or has members.
            UnknownOutcomeError, StorageError: some groups may be deleted; it is safe to repeat the
                call.
        """
        self._groups.delete_groups(group_ids)

    @limited
    def group_members(self, group_id: str) -> tuple[str, ...]:
        """Return the member ids of a group; empty if the group does not exist.

        Raises:
            StorageError: the group cannot be read.
        """
        return self._groups.members(group_id)

    @limited
    def remove_group_members(self, group_id: str, member_ids: Collection[str]) -> None:
        """Remove members from a group (KIP-571); others get their partitions.

        A removed member whose process still runs joins again.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            UnknownMemberIdError: a member is not in the group; none was removed.
            StorageError: they may still be members.
        """
        self._groups.remove_members(group_id, member_ids)

    def _describe_all(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        wanted, groups = dict.fromkeys(group_ids), self._groups
        found = map_requests(self._cluster().store, groups.describe, wanted)
        return dict(zip(wanted, found, strict=True))

    @property
    def _groups(self) -> GroupManager:
        if self._opened_groups is None:
            from spark_log.admin.group_manager import GroupManager  # it imports pyarrow.parquet

            self._opened_groups = GroupManager(self._cluster())
        return self._opened_groups
