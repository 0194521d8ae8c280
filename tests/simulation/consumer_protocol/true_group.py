"""A model of the simulated group: checks each record of its log, each commit and each answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.records import from_json
from spark_log.errors import CorruptRecordError
from spark_log.gateway.groups import ConsumerHeartbeatAnswer
from spark_log.types import TopicPartition
from tests.simulation.groups.true_group import Place, TrueGroup
from tests.simulation.violation import ViolationError


@dataclass(slots=True)
class Reader:
    """A client as the model knows it.

    Attributes:
        member_id: the id of its member.
        epoch: the member's epoch that it knows; 0: it is no member.
        reading: by partition that it reads, the next offset and its acquisition of the partition.
        has_late_request: whether a request that it does not wait for may still be served.
    """

    member_id: str = ""
    epoch: int = 0
    reading: dict[TopicPartition, Position] = field(default_factory=dict)
    has_late_request: bool = False


@dataclass(slots=True)
class Position:
    """The next offset of a partition that a client reads.

    Attributes:
        offset: the offset.
        acquisition: the name of this time for which the client has the partition: each of its
            commits has it as its metadata.
    """

    offset: int
    acquisition: str


@dataclass(frozen=True, slots=True)
class _Holder:
    """The client that began a partition last.

    Attributes:
        member_id: the id of its member.
        acquisition: the name of this time for which it has the partition.
        generation: the group's generation at that moment.
    """

    member_id: str
    acquisition: str
    generation: int


class TrueConsumerGroup(TrueGroup):
    """Follows the group's log, and checks what members, gateways and the offsets table do.

    Attributes:
        readers: the clients.
        note: adds a line to the trace.
    """

    note: Callable[[str], None]

    def __init__(self, *args: Any) -> None:
        """Return the model of an empty group."""
        super().__init__(*args)
        self.readers: list[Reader] = []
        self._holders: dict[Place, _Holder] = {}
        self._owned_since: dict[TopicPartition, int] = {}
        self._late: set[str] = set()
        self._acquisitions = 0
        self._highest: dict[Place, int] = {}

    # --- the group's log -------------------------------------------------------------------------

    def _replay(self, value: bytes) -> None:
        before = self.group
        record = from_json(value)
        is_next = record.generation > before.generation and not record.revision
        is_same = record.generation == before.generation
        if not (is_next or (is_same and record.revision == before.revision + 1)):
            raise ViolationError(f"generation {record.generation} follows {before.generation}")
        if before.members and is_next and record.generation != before.generation + 1:
            raise ViolationError(f"generation {record.generation} follows {before.generation}")
        try:
            after = before.replay(record)
        except CorruptRecordError as error:
            raise ViolationError(str(error)) from error
        is_classic = after.classic is not None
        if (
            is_same
            and not is_classic
            and (after.members, after.topics) != (before.members, before.topics)
        ):
            raise ViolationError(f"members changed within generation {record.generation}")
        self.note(f"generation {after.generation} by {record.change}: {_shown(after)}")
        if not is_classic:
            self._check_taken(before, after)
            self._check_topics(before, after)
        for partition, owner in after.owners.items():
            if before.owners.get(partition) != owner:
                self._owned_since[partition] = after.generation
        self.group = after
        self.groups[after.generation] = after

    def _check_taken(self, before: Group, after: Group) -> None:
        """Check that a member reads nothing more of what is taken from it while it is a member."""
        for partition, owner in before.owners.items():
            if after.owners.get(partition) == owner or owner not in after.members:
                continue
            for reader in self.readers:
                is_reading = reader.member_id == owner and partition in reader.reading
                if is_reading and not reader.has_late_request:
                    raise ViolationError(f"{partition} is taken from {owner}, which reads it")

    # --- answers to members ----------------------------------------------------------------------

    def check_answer(self, member_id: str, answer: ConsumerHeartbeatAnswer) -> None:
        """Check that the group's log has what a member is told."""
        if answer.epoch > self.group.generation:
            raise ViolationError(f"{member_id} was told epoch {answer.epoch}, which nobody wrote")
        if answer.assignment is None:
            return
        ids = {topic.topic_id: name for name, topic in self.topics.items()}
        told = {
            TopicPartition(ids[topic_id], number)
            for topic_id, numbers in answer.assignment.items()
            for number in numbers
        }
        if not any(
            member_id in group.members and group.members[member_id].owned == told
            for group in self.groups.values()
        ):
            raise ViolationError(f"{member_id} was told {sorted(told)}, which it never had")

    def check_fenced(self, reader: Reader) -> None:
        """Check that a member that was fenced is none in the group's log."""
        if self._is_member(reader):
            raise ViolationError(f"{reader.member_id} was fenced at epoch {reader.epoch}")

    def _is_member(self, reader: Reader) -> bool:
        group = self.group
        if group.consumer is None:
            return reader.member_id in group.members and reader.epoch == group.generation
        return group.consumer.may_commit(reader.member_id, reader.epoch, group.generation)

    # --- partitions ------------------------------------------------------------------------------

    def begin(self, reader: Reader, place: Place, offset: int) -> Position:
        """Check the offset at which a member begins to read; return its position.

        A member that begins late, when another one has begun, is refused by all of its commits.
        """
        partition = place[1]
        self._acquisitions += 1
        acquisition = f"{reader.member_id}/{self._acquisitions}"
        owner = self.group.owners.get(partition)
        is_owner = owner == reader.member_id and self._is_member(reader)
        holder = self._holders.get(place)
        if is_owner:
            for other in self.readers:
                if other is not reader and partition in other.reading and self._is_member(other):
                    raise ViolationError(
                        f"{reader.member_id} begins {partition}, which {other.member_id} reads"
                    )
            if offset != self._committed_offset(place):
                raise ViolationError(
                    f"{reader.member_id} begins {partition} at {offset}, but "
                    f"{self._committed_offset(place)} is committed"
                )
        elif owner is not None and self._is_member(reader) and not reader.has_late_request:
            raise ViolationError(f"{reader.member_id} begins {partition}, which {owner} has")
        elif (
            holder is not None
            and holder.member_id == owner != reader.member_id
            and holder.generation >= self._owned_since[partition]
        ):
            self._late.add(acquisition)
            return Position(offset, acquisition)
        self._holders[place] = _Holder(reader.member_id, acquisition, self.group.generation)
        return Position(offset, acquisition)

    def _committed_offset(self, place: Place) -> int:
        return self.positions.get(place, 0)

    def check_holder(self, place: Place, position: Position) -> None:
        """Check that nobody has begun a partition since the sender of an offset has it."""
        acquisition, holder = position.acquisition, self._holders[place].acquisition
        if acquisition != holder or acquisition in self._late:
            raise ViolationError(
                f"a commit of {acquisition} of {place[1]} took effect after {holder} had begun it"
            )

    def _check_rows(self, generation: int, member_id: str, rows: Mapping[Place, Any]) -> None:
        for place, position in rows.items():
            self.check_holder(place, position)
            if position.offset > self.handled.get(place, 0):
                raise ViolationError(f"{member_id} committed {position}, which nobody has handled")
            # A member may set back what it has committed since it has the partition: a commit may
            # arrive late, in Kafka, too.
            self.positions[place] = position.offset
            self._highest[place] = max(position.offset, self._highest.get(place, 0))

    def check_acknowledged(self, rows: Mapping[Place, Any]) -> None:
        """Check that an acknowledged commit took effect."""
        for place, position in rows.items():
            if self._highest.get(place, 0) < position.offset:
                raise ViolationError(
                    f"{place} was acknowledged at {position}, and is not committed"
                )


def _shown(group: Group) -> str:
    def names(partitions: frozenset[TopicPartition]) -> str:
        return ",".join(map(str, sorted(partitions)))

    def epoch(name: str) -> str:
        return "" if group.consumer is None else f" from {group.consumer.members[name].epoch}"

    return "; ".join(
        f"{name}{epoch(name)}: {names(member.owned)}"
        + (f" revokes {names(member.revoking)}" if member.revoking else "")
        for name, member in group.members.items()
    )
