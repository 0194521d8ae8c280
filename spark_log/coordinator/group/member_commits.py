"""Commits of a member: fenced by its generation, so that a zombie's late one changes nothing.

The group's log says who has what in each generation; the offsets table lies beside it, and the two
have no common commit. What joins them is a *fence* in the table: the highest generation of a group
that anything was committed or begun in. The table takes a commit, atomically with its rows, only if
its generation is no lower (`FencedOffsets`). See docs/adr/0010 for why that is enough:

- who is given a partition raises the fence to its own generation *before* it reads the position:
  whatever an earlier owner committed stands by then, and nothing of it comes after;
- who commits has the partition in the generation that it commits in; refused, it looks at the log,
  and commits in the newest generation only what it still has there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from spark_log.coordinator.group.coordinator import GroupStatus
from spark_log.errors import CommitFailedError, IllegalGenerationError, UnknownMemberIdError
from spark_log.types import OffsetAndMetadata, TopicPartition

_Position_co = TypeVar("_Position_co", covariant=True)
_Position = TypeVar("_Position")

_MAX_GENERATIONS = 20
"""Generations that may begin during one commit before it is given up."""


class FencedOffsets(Protocol[_Position_co]):
    """What is needed of the offsets table: commits in one order, each after a look at the fence."""

    def fence(self, group: str, generation: int) -> None:
        """Let no commit of a lower generation of this group take effect from now on.

        Raises:
            IllegalGenerationError: a higher generation has begun.
            StorageError: it may not have begun; call again.
        """

    def fetch(self, group: str) -> Mapping[TopicPartition, _Position_co]:
        """Return the group's positions, as they are after everything that took effect so far."""

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int,
        member_id: str,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Commit positions, and raise the fence to this generation, all in one step or not at all.

        Raises:
            IllegalGenerationError: a higher generation has begun; nothing was committed.
            UnknownOutcomeError: it may have been committed; committing it again is harmless.
        """


class MemberCommits(Generic[_Position]):
    """Reads and commits positions in the name of one member. For one thread at a time."""

    def __init__(
        self,
        table: FencedOffsets[_Position],
        group_id: str,
        status: Callable[[], GroupStatus],
        refresh: Callable[[], GroupStatus],
    ) -> None:
        """Commit for a member.

        Args:
            table: the offsets table.
            group_id: the group's.
            status: the member's place as it was seen last.
            refresh: its place as it is now, read from the group's log.
        """
        self._table = table
        self._group_id = group_id
        self._status = status
        self._refresh = refresh

    def begin(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, _Position]:
        """Return where to begin in partitions that were just given to the member.

        Those that were taken away again meanwhile, and those without a position, are left out.

        Raises:
            UnknownMemberIdError: it is no member any more.
            StorageError: the storage does not answer; call again.
        """
        status = self._status()
        for _ in range(_MAX_GENERATIONS):
            try:
                self._table.fence(self._group_id, status.generation)
            except IllegalGenerationError:
                status = self._refreshed(status)
                continue
            wanted = status.assigned.intersection(partitions)
            found = self._table.fetch(self._group_id)
            return {tp: found[tp] for tp in wanted if tp in found}
        raise CommitFailedError(
            f"group {self._group_id!r} changes so fast that no generation of it could begin"
        )

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit positions of partitions that the member has.

        Args:
            offsets: by partition, the next offset to read.
            topic_ids: of the topics that were read: one that was created again is another.

        Raises:
            CommitFailedError: it does not have one of them any more, or is no member; nothing was
                committed.
            UnknownOutcomeError: they may have been committed.
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
            except IllegalGenerationError:
                try:
                    status = self._refreshed(status)
                except UnknownMemberIdError as error:
                    raise CommitFailedError(f"nothing was committed: {error}") from error
            else:
                return
        raise CommitFailedError(
            f"group {self._group_id!r} changes so fast that no commit in it came through"
        )

    def _check_held(
        self,
        status: GroupStatus,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
    ) -> None:
        lost = _lost(status, offsets, topic_ids)
        if lost:
            raise CommitFailedError(
                f"{', '.join(map(str, sorted(lost)))} of group {self._group_id!r} went to another "
                f"member, or its topic was deleted: nothing was committed, and what was read since "
                f"the last commit will be read again. Poll more often, or raise "
                f"max.poll.interval.ms"
            )

    def _refreshed(self, before: GroupStatus) -> GroupStatus:
        after = self._refresh()
        if after.generation > before.generation:
            return after
        raise CommitFailedError(
            f"positions of group {self._group_id!r} are of a later generation than "
            f"{after.generation}, the newest in its log: a part of the log is lost; raise it by "
            f"spark-log groups repair"
        )

    def _status_or_fail(self, read: Callable[[], GroupStatus]) -> GroupStatus:
        try:
            return read()
        except UnknownMemberIdError as error:
            raise CommitFailedError(f"nothing was committed: {error}") from error


def _lost(
    status: GroupStatus,
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
