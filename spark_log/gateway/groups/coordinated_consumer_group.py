"""One group of the consumer protocol (KIP-848) with what makes it durable.

On storage: the group's log and its rows in the offsets table, as of a classic group
(`CoordinatedGroup`). All members are in the log; in memory is only who is alive. A change is
written only where the log still has the generation that is known.

If a change takes partitions from a member, the offsets table refuses commits of earlier generations
before anything of the change is answered. After a crash at any point another gateway continues from
the log.

The rules: (protocol G15, G16, G17, G19).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_log.coordinator import ConsumerGroup, Group, GroupLog, GroupRecord, GroupTopic
from spark_log.errors import IllegalGenerationError
from spark_log.gateway.groups.coordinated_group import (
    FencedOffsets,
    ForeignMembersError,
    GroupLostError,
)
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.metadata import MetadataImage

_log = logging.getLogger(__name__)

DecideGroup = Callable[[Group, Mapping[str, GroupTopic]], GroupRecord | None]
"""A decision: the group and the existing topics; the record of the next generation, or None."""


class CoordinatedConsumerGroup:
    """Loads and changes one group. For one thread at a time, except `commit`; may block.

    Attributes:
        group_id: the group's id.
        image: the metadata that the last change was decided by; None before the first one.
    """

    def __init__(
        self,
        log: GroupLog,
        table: FencedOffsets,
        group_id: str,
        *,
        read_image: Callable[[], MetadataImage],
        finalize_feature: Callable[[], None] = lambda: None,
    ) -> None:
        """Return a group; nothing is read yet.

        Args:
            log: the group's log, which only this object uses.
            table: the root's offsets table.
            group_id: the group's id.
            read_image: reads the newest metadata.
            finalize_feature: called before the first record that older releases cannot read.
        """
        self.group_id = group_id
        self._log = log
        self._table = table
        self._read_image = read_image
        self._finalize_feature = finalize_feature
        self._fence = 0
        self.image: MetadataImage | None = None

    def load(self) -> Group:
        """Return the group as its log has it.

        Raises:
            ForeignMembersError: it has members of another kind.
            GroupLostError: another process has begun a generation meanwhile.
            SparkLogError: its log or the table cannot be read.
        """
        self._log.replay()
        group = self._log.state
        self._fence = self._table.generation(self.group_id)
        if group.consumer is None:
            if group.members:
                raise ForeignMembersError(self.group_id)
            group = replace(group, classic=None, consumer=ConsumerGroup())
        if group.members and self._fence < group.generation:
            self._fence_loaded(group.generation)
        _log.debug(
            "group %s: loaded generation %d of the consumer protocol with %d members",
            self.group_id,
            group.generation,
            len(group.members),
        )
        return group

    def write(self, decide: DecideGroup, known: Group) -> Group:
        """Make a change durable; return the group as the log has it then.

        Args:
            decide: returns the change.
            known: the group that the caller knows.

        Raises:
            GroupLostError: another process has changed the group.
            UnknownOutcomeError, StorageError: the change, or its fence, may have been made. Load
                the group again.
        """
        if not known.members:
            self._finalize_feature()
        written: list[Group] = []

        def decide_next(group: Group) -> GroupRecord | None:
            self._check(group, known)
            # Commits without membership may have raised the fence of an empty group.
            start = replace(group, generation=max(group.generation, self._fence))
            self.image = self._read_image()
            topics = {topic.name: GroupTopic.of(topic) for topic in self.image.topics()}
            record = decide(start, topics)
            written[:] = [] if record is None else [group.replay(record)]
            return record

        self._log.commit(decide_next, is_recent=True)
        group = self._log.state
        if not written:
            return known
        # If the answer was lost and found again, others may have changed the group since.
        self._check(group, written[0])
        is_taken = any(group.owners.get(tp) != owner for tp, owner in known.owners.items())
        if is_taken or not known.members:  # a commit without membership may be on its way
            self._raise_fence(group.generation)
        return group

    def check(self, known: Group) -> None:
        """Read the log, and check that it still has the generation that is known.

        Raises:
            GroupLostError: another process has changed the group.
            StorageError: the storage does not answer.
        """
        self._log.replay()
        self._check(self._log.state, known)

    def commit(
        self,
        known: Group,
        member_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets of a member in the group's generation; durable on return.

        Any thread may call this at any time: it does not use the group's log.

        Args:
            known: the group.
            member_id: the member's id.
            offsets: the offsets.
            check: called before each try to commit; raises if this gateway does not coordinate the
                group any more.

        Raises:
            CommitFailedError: other commits kept coming first, or ``check`` refused.
            IllegalGenerationError: a higher generation has taken partitions from a member.
            SparkLogError: See `OffsetsTable.commit`.
        """
        self._table.commit(
            self.group_id,
            offsets,
            generation=known.generation,
            member_id=member_id,
            check=check,
        )

    def _check(self, group: Group, known: Group) -> None:
        if group.generation != known.generation:
            _log.info(
                "group %s: another process has made generation %d; this gateway knew %d and does "
                "not coordinate the group any more",
                self.group_id,
                group.generation,
                known.generation,
            )
            raise GroupLostError(self.group_id)

    def _fence_loaded(self, generation: int) -> None:
        """Raise the fence: the coordinator before this one may have died before it did."""
        self._raise_fence(generation)

    def _raise_fence(self, generation: int) -> None:
        try:
            self._table.fence(self.group_id, generation)
        except IllegalGenerationError:
            raise GroupLostError(self.group_id) from None
        self._fence = generation
