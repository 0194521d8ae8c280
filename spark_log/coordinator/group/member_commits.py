"""Commits of a member, fenced by its generation: a late commit of a zombie changes nothing.

The group's log says which member has which partitions in each generation. The offsets table is
separate, and no commit covers both. They are joined by a *fence* in the table: the highest
generation of the group in which anything was committed or started. The table accepts a commit,
atomically with its rows, only if its generation is not lower (`FencedOffsets`). docs/adr/0010 shows
why this is enough:

- a member that gets a partition raises the fence to its own generation *before* it reads the
  committed offset: by then the table has all commits of earlier owners, and none can follow;
- a member that commits has the partition in the generation of the commit. If the commit is refused,
  it reads the group's log and commits, in the newest generation, only partitions that it still has.

The rules: (protocol G10, G11).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from spark_log.coordinator.group.group import PendingOffsets
from spark_log.coordinator.group.status import MemberStatus
from spark_log.errors import CommitFailedError, IllegalGenerationError, UnknownMemberIdError
from spark_log.types import OffsetAndMetadata, TopicPartition

_Committed_co = TypeVar("_Committed_co", covariant=True)
_Committed = TypeVar("_Committed")

_log = logging.getLogger(__name__)

Settle = Callable[[str, Collection[PendingOffsets]], None]
"""Settles pending offsets of a group, as `TransactionalOffsets.settle` does."""

_MAX_GENERATIONS = 20
"""Number of new generations during one commit after which it fails."""


class FencedOffsets(Protocol[_Committed_co]):
    """The part of the offsets table that members use: serial commits, each checked by the fence."""

    def fence(self, group: str, generation: int) -> None:
        """Refuse all commits of lower generations of this group from now on.

        Raises:
            IllegalGenerationError: a higher generation has started.
            StorageError: the fence may not have been raised; call again.
        """

    def fetch(self, group: str) -> Mapping[TopicPartition, _Committed_co]:
        """Return the group's committed offsets, after all commits so far."""

    def fetch_fenced(
        self, group: str, topic_ids: Mapping[str, str]
    ) -> Mapping[TopicPartition, _Committed_co]:
        """Return the committed offsets of some topics when the fence was raised, or later.

        Args:
            group: the group's id. The caller has just raised its fence.
            topic_ids: topic → the id of the topic.
        """

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int,
        member_id: str,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Commit offsets and raise the fence to this generation, atomically.

        Raises:
            IllegalGenerationError: a higher generation has started; nothing was committed.
            UnknownOutcomeError: the offsets may be committed; it is safe to commit them again.
        """


class MemberCommits(Generic[_Committed]):
    """Reads and commits offsets for one member. For one thread at a time."""

    def __init__(
        self,
        table: FencedOffsets[_Committed],
        group_id: str,
        status: Callable[[], MemberStatus],
        refresh: Callable[[], MemberStatus],
        settle: Settle | None = None,
    ) -> None:
        """Return the commits of a member.

        Args:
            table: the offsets table.
            group_id: the group's id.
            status: the function that returns the member's last known status.
            refresh: the function that reads the group's log and returns the member's present
                status.
            settle: the function that rolls pending offsets forward, or raises
                `UnstableOffsetCommitError`; None if no transaction commits offsets of the group.
        """
        self._table = table
        self._group_id = group_id
        self._status = status
        self._refresh = refresh
        self._settle = settle

    def begin(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, _Committed | None]:
        """Return the committed offsets of partitions that were just assigned to the member.

        Returns:
            Partition → the committed offset, or None if the group committed none. Partitions that
            other members got meanwhile are left out.

        Raises:
            UnknownMemberIdError: it is not a member any more.
            UnstableOffsetCommitError: a transaction that commits one of the partitions is not
                decided; call again.
            StorageError: the storage does not answer; call again.
        """
        status = self._status()
        for _ in range(_MAX_GENERATIONS):
            try:
                self._table.fence(self._group_id, status.generation)
            except IllegalGenerationError as error:
                _log.debug("reading the group before the offsets: %s", error)
                status = self._refreshed(status)
                continue
            wanted = status.assigned.intersection(partitions)
            # Earlier owners sent their offsets before they lost the partitions, so the status has
            # all of them.
            pending = [
                each for each in status.pending_offsets if not wanted.isdisjoint(each.partitions)
            ]
            if pending and self._settle is not None:
                self._settle(self._group_id, pending)
                found = self._table.fetch(self._group_id)  # others may have settled them
            else:
                topic_ids = {name: topic.topic_id for name, topic in status.topics.items()}
                found = self._table.fetch_fenced(self._group_id, topic_ids)
            return {tp: found.get(tp) for tp in wanted}
        raise CommitFailedError(
            f"group {self._group_id!r} changes too fast: it had {_MAX_GENERATIONS} new generations "
            f"while this member read its offsets; try again"
        )

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit offsets of partitions that the member has.

        Args:
            offsets: partition → the next offset to read.
            topic_ids: topic → the id of the topic that was read; a topic that was created again has
                another id.

        Raises:
            CommitFailedError: the member has lost one of the partitions, or is not a member any
                more; nothing was committed.
            UnknownOutcomeError: the offsets may be committed.
        """
        status = self._status_or_fail(self._status)
        for _ in range(_MAX_GENERATIONS):
            if _lost(status, offsets, topic_ids):
                status = self._status_or_fail(self._refresh)
            self._check_held(status, offsets, topic_ids)
            try:
                self._table.commit(
                    self._group_id,
                    offsets,
                    generation=status.generation,
                    member_id=status.member_id,
                    topic_ids=topic_ids,
                )
            except IllegalGenerationError as refused:
                _log.debug("reading the group, then committing again: %s", refused)
                try:
                    status = self._refreshed(status)
                except UnknownMemberIdError as error:
                    raise CommitFailedError(f"nothing was committed: {error}") from error
            else:
                return
        raise CommitFailedError(
            f"group {self._group_id!r} changes too fast: it had {_MAX_GENERATIONS} new generations "
            f"during the commit; nothing was committed, try again"
        )

    def _check_held(
        self,
        status: MemberStatus,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
    ) -> None:
        lost = _lost(status, offsets, topic_ids)
        if lost:
            raise CommitFailedError(
                f"{', '.join(map(str, sorted(lost)))} of group {self._group_id!r} went to another "
                f"member, or its topic was deleted: nothing was committed, and records read since "
                f"the last commit will be read again. Poll more often, or raise "
                f"max.poll.interval.ms"
            )

    def _refreshed(self, before: MemberStatus) -> MemberStatus:
        after = self._refresh()
        if after.generation > before.generation:
            return after
        raise CommitFailedError(
            f"committed offsets of group {self._group_id!r} have a later generation than "
            f"{after.generation}, the newest in its log: a part of the log is lost; run "
            f"spark-log groups repair"
        )

    def _status_or_fail(self, read: Callable[[], MemberStatus]) -> MemberStatus:
        try:
            return read()
        except UnknownMemberIdError as error:
            raise CommitFailedError(f"nothing was committed: {error}") from error


def _lost(
    status: MemberStatus,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[str, str],
) -> set[TopicPartition]:
    return {
        tp
        for tp in offsets
        if tp not in status.held
        or tp.topic not in status.topics
        or status.topics[tp.topic].topic_id != topic_ids[tp.topic]
    }
