"""`GroupManager`: reads and changes groups for `Admin`, by Kafka's rules.

Offsets are changed in the group's current generation, and only while the group has no members
(docs/adr/0010). If a member joins at the same time, either it reads the changed offsets, or the
change is refused and decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spark_log.admin.cluster_calls import open_log, poll_stripes
from spark_log.cluster import Cluster
from spark_log.coordinator import (
    GROUP_STATES,
    TOMBSTONE,
    CommittedOffset,
    Group,
    GroupCoordinator,
    GroupLog,
    Member,
    OffsetsTable,
    PartitionKey,
    Row,
    check_metadata,
    check_offset,
)
from spark_log.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidConfigurationError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    nearest,
)
from spark_log.log import IsolationLevel, Lag, StateView, first_unread_us
from spark_log.metadata import MetadataImage
from spark_log.storage import map_requests
from spark_log.threads import call_beside
from spark_log.types import (
    GroupDescription,
    GroupListing,
    GroupPartitionLag,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)

if TYPE_CHECKING:
    from spark_log.coordinator import TransactionalOffsets

_MAX_TRIES = 20

_Positions = Mapping[PartitionKey, CommittedOffset]


class GroupManager:
    """Lists, describes and changes the groups of one root."""

    def __init__(self, cluster: Cluster) -> None:
        """Return a manager for the groups of a root.

        Raises:
            UnsupportedStoreError: Delta tables are not possible on this storage (``memory://``).
        """
        self.table = OffsetsTable(cluster)
        self._cluster = cluster
        self._transactions: TransactionalOffsets | None = None

    # --- reading ---------------------------------------------------------------------------------

    def list_groups(self, states: Collection[str] | None = None) -> list[GroupListing]:
        """Return the groups with members or committed offsets, in one of ``states``."""
        wanted = None if states is None else {_state(state) for state in states}
        store = self._cluster.store
        # Both at the same time on an object store, where each is several requests in sequence.
        read_table = self.table.groups_with_offsets
        with_positions_read = read_table if store.is_local else call_beside(read_table)
        logged = GroupLog.list_names(store, self._cluster.clock)
        views = dict(zip(logged, map_requests(store, self._view, logged), strict=True))
        with_positions = with_positions_read()
        found = []
        for group_id in sorted(with_positions | views.keys()):
            view = views.get(group_id)
            if group_id not in with_positions and (view is None or not view.state.members):
                continue
            found.append(
                GroupListing(
                    group_id,
                    "" if view is None else view.state.protocol_type,
                    "Empty" if view is None else view.state.state,
                    "classic" if view is None or view.state.consumer is None else "consumer",
                )
            )
        return [each for each in found if wanted is None or each.group_state in wanted]

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state, generation and members of groups, by group id."""
        wanted = dict.fromkeys(group_ids)

        def describe(group_id: str) -> GroupDescription:
            return describe_group(self._existing(group_id))

        return dict(zip(wanted, map_requests(self._cluster.store, describe, wanted), strict=True))

    def members(self, group_id: str) -> tuple[str, ...]:
        """Return the member ids; empty if the group does not exist."""
        return tuple(self._view(group_id).state.members)

    def offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets, of some partitions or of all."""
        wanted = None if partitions is None else {TopicPartition(*each) for each in partitions}
        if require_stable:
            self._transactional_offsets.settle_group(group_id, wanted)
        return {
            tp: OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch)
            for tp, found in sorted(self.table.fetch(group_id).items())
            if wanted is None or tp in wanted
        }

    def lags(
        self,
        descriptions: Collection[GroupDescription],
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[str, list[GroupPartitionLag]]:
        """Return the lag of groups in each partition with a committed offset or an owner.

        All committed offsets are read first, then the log of each partition once: no committed
        offset is compared with an older end, and groups that have committed the same offset have
        the same lag.
        """
        positions_of = {
            each.group_id: self.table.committed_offsets(each.group_id) for each in descriptions
        }
        # Read the metadata after the offsets: an offset in a deleted topic is not an offset in a
        # new topic of the same name.
        image = self._cluster.image()
        committed = {group_id: _in_image(image, each) for group_id, each in positions_of.items()}
        offsets: dict[TopicPartition, set[int]] = {}
        for description in descriptions:
            positions = committed[description.group_id]
            for tp in positions.keys() | description.owners.keys():
                topic = image.find(tp.topic)
                if topic is not None and tp.partition in topic.partitions:
                    offsets.setdefault(tp, set())
                    if tp in positions:
                        offsets[tp].add(positions[tp].offset)

        deleted: set[str] = set()
        logs = {tp: open_log(self._cluster, image, tp) for tp in offsets}
        for log in logs.values():
            log.leave_polls()
        poll_stripes(self._cluster, {tp: image.topic(tp.topic) for tp in offsets}, deleted)

        def read(tp: TopicPartition) -> _Bounds | None:
            topic = image.topic(tp.topic)
            if topic.topic_id in deleted:
                return None
            try:
                with self._cluster.detecting_deletion(topic):
                    log = logs[tp]
                    view = log.observe_polled()
                    start = view.log_start_offset
                    end = log.end_offset(view, isolation_level=isolation_level)
                    lags = {Lag.of(each, start, end) for each in offsets[tp]}
                    firsts = {each.first_offset for each in lags if each.unread}
                    since_us = {each: first_unread_us(log, each) for each in sorted(firsts)}
                    return _Bounds(start, end, since_us)
            except UnknownTopicOrPartitionError:
                return None  # deleted since the metadata were read

        found = map_requests(self._cluster.store, read, offsets)
        ends = {tp: each for tp, each in zip(offsets, found, strict=True) if each is not None}
        now_us = self._cluster.clock.time_us()  # wall clock: only shown to users
        lags = {}
        for each in descriptions:
            positions, owners = committed[each.group_id], each.owners
            lags[each.group_id] = [
                _lag(tp, ends[tp], positions.get(tp), owners.get(tp), now_us)
                for tp in sorted((positions.keys() | owners.keys()) & ends.keys())
            ]
        return lags

    # --- changing --------------------------------------------------------------------------------

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set committed offsets of a group without members, all of them or none."""
        image = self._cluster.image()
        rows = []
        for (topic, partition), position in sorted(offsets.items()):
            if partition not in image.topic(topic).partitions:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has no partition {partition}; it has "
                    f"{image.topic(topic).num_partitions}, numbered from 0",
                    topic=topic,
                )
            check_offset(TopicPartition(topic, partition), position.offset)
            check_metadata(TopicPartition(topic, partition), position)
            key = PartitionKey(topic, image.topic(topic).topic_id, partition)
            rows.append(Row(key, position.offset, position.metadata or "", position.leader_epoch))
        if rows:
            self._change(group_id, lambda view: _check_empty(view, "altered"), lambda *_: rows)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Delete committed offsets, all of them or none; return the partitions that had one.

        Offsets that a transaction may commit later are deleted, too.
        """
        wanted = {TopicPartition(*each) for each in partitions}
        self._existing(group_id)
        topics = {each.topic for each in wanted}
        deleted: set[TopicPartition] = set()

        def check(view: StateView[Group]) -> None:
            for topic in sorted(topics):
                subscribers = [
                    member.member_id
                    for member in view.state.members.values()
                    if topic in member.topics
                    or any(held.topic == topic for held in member.held | member.pending)
                    or (member.pattern is not None and topic in view.state.topics)
                ]
                if subscribers:
                    raise GroupSubscribedToTopicError(
                        f"members of group {group_id!r} subscribe to {topic!r}; to delete its "
                        f"committed offsets, stop {', '.join(subscribers[:3])} first",
                        group_id=group_id,
                        members=tuple(subscribers),
                    )

        def decide(view: StateView[Group], positions: _Positions) -> list[Row]:
            keys = positions.keys() | self._pending(view)
            found = [key for key in keys if TopicPartition(key.topic, key.partition) in wanted]
            deleted.clear()
            deleted.update(
                TopicPartition(key.topic, key.partition) for key in found if key in positions
            )
            return [Row(key, TOMBSTONE) for key in found]

        self._change(group_id, check, decide)
        return deleted

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete the committed offsets of groups that have no members.

        Offsets that a transaction may commit later are deleted, too. The fence after a deletion is
        higher than the generation of the last members, so it tells whether they came later.
        """
        wanted = list(dict.fromkeys(group_ids))
        for group_id in wanted:
            _check_empty(self._deletable(group_id), "deleted")
        for group_id in wanted:
            self._change(
                group_id,
                lambda view: _check_empty(view, "deleted"),
                lambda view, positions: [
                    Row(key, TOMBSTONE) for key in positions.keys() | self._pending(view)
                ],
                ends_generation=True,
            )

    def remove_members(self, group_id: str, member_ids: Collection[str]) -> None:
        """Remove members from a group."""
        group = self._existing(group_id).state
        for member_id in member_ids:
            if member_id not in group.members:
                raise UnknownMemberIdError(
                    f"{member_id!r} is not in group {group_id!r}; it has "
                    f"{', '.join(sorted(group.members)) or 'no members'}",
                    group_id=group_id,
                    member_id=member_id,
                )
        GroupCoordinator(self._cluster, group_id).remove(member_ids)

    # --- helpers ---------------------------------------------------------------------------------

    @property
    def _transactional_offsets(self) -> TransactionalOffsets:
        if self._transactions is None:
            # A late import: most calls need no transactions.
            from spark_log.coordinator import TransactionalOffsets

            # Kept, because it measures for how long it has seen a transaction open.
            self._transactions = TransactionalOffsets(self._cluster, self.table)
        return self._transactions

    def _change(
        self,
        group_id: str,
        check: Callable[[StateView[Group]], None],
        decide: Callable[[StateView[Group], _Positions], list[Row]],
        *,
        ends_generation: bool = False,
    ) -> None:
        refused: IllegalGenerationError | None = None
        for _ in range(_MAX_TRIES):
            # Read the fence first: a member that joins later has a higher generation.
            fence = self.table.generation(group_id)
            view = self._view(group_id)
            check(view)
            generation = max(fence, view.state.generation)
            if ends_generation and generation == view.state.generation > 0:
                generation += 1
            try:
                self.table.change(group_id, partial(decide, view), generation=generation)
            except IllegalGenerationError as error:
                refused = error
            else:
                return
        assert refused is not None
        raise refused

    def _pending(self, view: StateView[Group]) -> set[PartitionKey]:
        """Return the partitions whose offsets transactions may commit later."""
        image = self._cluster.image()
        return {
            PartitionKey(tp.topic, topic.topic_id, tp.partition)
            for pending in view.state.pending_offsets
            for tp in pending.partitions
            if (topic := image.find(tp.topic)) is not None
        }

    def _existing(self, group_id: str) -> StateView[Group]:
        view = self._view(group_id)
        if not view.state.members and not self.table.committed_offsets(group_id):
            known = {each.group_id for each in self.list_groups()}
            near = nearest(group_id, known, 3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise GroupIdNotFoundError(
                f"there is no group {group_id!r}: it has neither members nor offsets{hint}",
                group_id=group_id,
            )
        return view

    def _deletable(self, group_id: str) -> StateView[Group]:
        """Return a group that exists, or whose members left since it was deleted last.

        In Kafka, too, a group without members and offsets can be deleted.
        """
        view = self._view(group_id)
        if 0 < view.state.generation >= self.table.generation(group_id):
            return view
        return self._existing(group_id)

    def _view(self, group_id: str) -> StateView[Group]:
        return GroupLog.view(self._cluster.store, group_id, self._cluster.clock)


def _state(text: str) -> str:
    for state in GROUP_STATES:
        if state.lower() == text.strip().lower():
            return state
    raise InvalidConfigurationError(
        f"there is no group state {text!r}; expected {', '.join(GROUP_STATES)}"
    )


def _check_empty(view: StateView[Group], what: str) -> None:
    members = tuple(view.state.members)
    if members:
        raise GroupNotEmptyError(
            f"group {view.state.group_id!r} cannot be {what} while it has members: stop "
            f"{', '.join(members[:3])}{', …' if len(members) > 3 else ''} first. If its process is "
            "gone, remove it with Admin.remove_group_members",
            group_id=view.state.group_id,
            members=members,
        )


def _in_image(image: MetadataImage, positions: _Positions) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets in partitions of existing topics."""
    return {
        TopicPartition(key.topic, key.partition): position
        for key, position in positions.items()
        if (topic := image.find(key.topic)) is not None
        and topic.topic_id == key.topic_id
        and key.partition in topic.partitions
    }


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The readable offsets of a partition, and the times of first unread records by offset."""

    start_offset: int
    end_offset: int
    since_us: Mapping[int, int | None]


def _lag(
    tp: TopicPartition,
    bounds: _Bounds,
    committed: CommittedOffset | None,
    member: MemberDescription | None,
    now_us: int,
) -> GroupPartitionLag:
    end = bounds.end_offset
    if committed is None:
        return GroupPartitionLag(tp, None, end, None, None, None, "", None, member)
    lag = Lag.of(committed.offset, bounds.start_offset, end)
    lag_ms = None if lag.unread else 0
    since_us = bounds.since_us.get(lag.first_offset) if lag.unread else None
    if since_us is not None:
        lag_ms = max(0, now_us - since_us) // 1000
    return GroupPartitionLag(
        tp,
        committed.offset,
        end,
        lag.unread,
        lag.deleted,
        lag_ms,
        committed.metadata,
        committed.commit_timestamp_us,
        member,
    )


def describe_group(view: StateView[Group]) -> GroupDescription:
    """Return the state, generation and members of a group that was read."""
    group = view.state
    return GroupDescription(
        group.group_id,
        group.state,
        group.protocol_type,
        group.protocol or "",
        group.generation,
        tuple(map(_describe_member, group.members.values())),
    )


def _describe_member(member: Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.owned)),
        tuple(sorted(member.revoking)),
        tuple(sorted(member.pending)),
    )
