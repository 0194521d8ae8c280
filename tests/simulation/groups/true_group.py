"""A model of the simulated group: checks every record of its log and every commit."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.coordinator.group.group import Group, GroupTopic
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.records import from_json
from spark_log.errors import CorruptRecordError
from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.types import TopicPartition
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.store import SimulatedDisk
from tests.simulation.violation import ViolationError

GROUP_ID = "group"
DIRECTORY = GroupLog.directory_of(GROUP_ID)

Place = tuple[str, TopicPartition]
"""A partition of one incarnation of a topic: (topic id, partition)."""


class TrueGroup:
    """Follows the group's log on the disk, and checks each record against the group's guarantees.

    Attributes:
        groups: the group's state in each generation.
        released: the members that released each partition, and have not begun to read it again.
        topics: the current topics; each change makes a new version.
        fence: the highest generation in the offsets table.
        positions: the committed offsets.
        promised: the offset up to which committed transactions have committed each partition.
        begun_in: the generation in which a member last began to read each partition.
        handled: the offset up to which members have handled the records of each partition.
    """

    def __init__(self, disk: SimulatedDisk, clock: Clock) -> None:
        """Return the model of an empty group on a disk, with the storage's clock."""
        self._disk = disk
        self._clock = clock
        self._next_offset = 0
        self._started_us: dict[int, int] = {}
        self._ever: set[str] = set()
        self._gone: set[str] = set()
        self.group = Group(GROUP_ID)
        self.groups: dict[int, Group] = {0: self.group}
        self.released: dict[TopicPartition, set[str]] = {}
        self.topics: dict[str, GroupTopic] = {}
        self._known: dict[str, list[GroupTopic]] = {}
        self.fence = 0
        self.positions: dict[Place, int] = {}
        self.handled: dict[Place, int] = {}
        self.promised: dict[Place, int] = {}
        self.begun_in: dict[Place, int] = {}

    # --- the group's log -------------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: the group's log may grow."""
        directory, _, file = path.rpartition("/")
        name = SegmentName.parse(file)
        marker = StartMarker.parse(file)
        if directory == DIRECTORY and marker is not None:
            self._started_us.setdefault(marker.log_start_offset, self._clock.time_us())
        if directory != DIRECTORY or name is None or name.base_offset < self._next_offset:
            return  # derived, or void because its name was used before
        if name.base_offset > self._next_offset:
            raise ViolationError(f"{file} was created after the log's end, {self._next_offset}")
        reader = SegmentReader(
            self._disk, DIRECTORY, name, topic_id=GroupLog.topic_id, partition=0, size_bytes=None
        )
        for batch in reader.read(reader.base_offset):
            for value in batch.records.column("value").to_pylist():
                self._replay(value)
        self._next_offset = reader.end_offset

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file, whose name no member may need any more."""
        directory, _, file = path.rpartition("/")
        name = SegmentName.parse(file)
        if directory != DIRECTORY or name is None or not file.endswith(".log"):
            return
        before_us = self._clock.time_us() - DELETE_DELAY_MS * 1000
        started_us = [us for at, us in self._started_us.items() if at > name.base_offset]
        if min(started_us, default=before_us + 1) > before_us:
            raise ViolationError(f"{file} was deleted while other members may still look for it")

    def _replay(self, value: bytes) -> None:
        before = self.group
        record = from_json(value)
        is_next = record.generation == before.generation + 1 and not record.revision
        is_same = record.generation == before.generation
        if not (is_next or (is_same and record.revision == before.revision + 1)):
            raise ViolationError(f"generation {record.generation} follows {before.generation}")
        try:
            after = before.replay(record)
        except CorruptRecordError as error:
            raise ViolationError(str(error)) from error
        if is_same and (after.members, after.topics) != (before.members, before.topics):
            raise ViolationError(f"members changed within generation {record.generation}")
        self._check_members(before, after)
        self._check_moves(before, after)
        self._check_topics(before, after)
        self.group = after
        self.groups[after.generation] = after

    def _check_members(self, before: Group, after: Group) -> None:
        self._gone |= before.members.keys() - after.members.keys()
        back = self._gone & after.members.keys()
        if back:
            raise ViolationError(f"{', '.join(back)} was removed, and came back")

    def _check_moves(self, before: Group, after: Group) -> None:
        """Check that a remaining member has released each partition that moves to another."""
        for partition, owner in after.owners.items():
            earlier = before.owners.get(partition)
            if earlier in (None, owner) or earlier not in after.members:
                continue
            topic, was = after.topics[partition.topic], before.topics[partition.topic]
            if topic.topic_id != was.topic_id:
                continue
            if earlier not in self.released.get(partition, ()):
                raise ViolationError(f"{partition} went to {owner}, but {earlier} has it still")

    def _check_topics(self, before: Group, after: Group) -> None:
        for name, topic in after.topics.items():
            was = before.topics.get(name)
            versions = self._known.get(name, [])
            if topic not in versions:
                raise ViolationError(f"topic {name} never was {topic}")
            if was is not None and versions.index(topic) < versions.index(was):
                raise ViolationError(f"topic {name} is {topic} again, after {was}")

    # --- topics ----------------------------------------------------------------------------------

    def set_topic(self, name: str, topic: GroupTopic | None) -> None:
        """Create, change or delete a topic in the model."""
        if topic is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = topic
            self._known.setdefault(name, []).append(topic)

    # --- the offsets table -----------------------------------------------------------------------

    def on_fenced(self, generation: int) -> None:
        """Handle the fence of a generation in the offsets table."""
        self.fence = max(self.fence, generation)

    def on_committed(self, generation: int, member_id: str, rows: Mapping[Place, int]) -> None:
        """Check a commit at the moment when it takes effect."""
        if generation < self.fence:
            raise ViolationError(
                f"a commit of {member_id} in generation {generation} took effect after "
                f"generation {self.fence} had begun"
            )
        self.fence = generation
        self._check_rows(generation, member_id, rows)

    def on_rolled_forward(self, generation: int, member_id: str, rows: Mapping[Place, int]) -> None:
        """Check offsets of a transaction at the moment when they take effect."""
        self.fence = max(self.fence, generation)
        self._check_rows(generation, member_id, rows)

    def promise(self, rows: Mapping[Place, int]) -> None:
        """Remember that a transaction with these offsets was acknowledged."""
        for place, offset in rows.items():
            self.promised[place] = max(offset, self.promised.get(place, 0))

    def _check_rows(self, generation: int, member_id: str, rows: Mapping[Place, int]) -> None:
        group = self.groups[generation]
        for (topic_id, partition), offset in rows.items():
            if group.owners.get(partition) != member_id:
                raise ViolationError(
                    f"{member_id} committed {partition} in generation {generation}, in which "
                    f"{group.owners.get(partition)} has it"
                )
            begun = self.begun_in.get((topic_id, partition), 0)
            if generation < begun:
                raise ViolationError(
                    f"a commit of {member_id} of {partition} in generation {generation} took "
                    f"effect after a member had begun it in generation {begun}"
                )
            before = self.positions.get((topic_id, partition), 0)
            if offset < before and self._exists((topic_id, partition)):
                raise ViolationError(
                    f"{member_id} committed {offset} of {partition}, after {before}"
                )
            handled = self.handled.get((topic_id, partition), 0)
            if offset > handled:
                raise ViolationError(
                    f"{member_id} committed {offset} of {partition}, of which {handled} are handled"
                )
            self.positions[topic_id, partition] = offset

    def on_handled(self, place: Place, offset: int) -> None:
        """Remember that a member has handled its records before an offset."""
        self.handled[place] = max(offset, self.handled.get(place, 0))

    def check_acknowledged(self, rows: Mapping[Place, int]) -> None:
        """Check that an acknowledged commit took effect."""
        for place, offset in rows.items():
            if self.positions.get(place, 0) < offset and self._exists(place):
                raise ViolationError(f"{place} was acknowledged at {offset}, and is not committed")

    def check_begun(self, place: Place, position: int, member_id: str, generation: int) -> None:
        """Check the position at which a member begins to read: no other member may change it later.

        A deleted topic has no positions, and a member that expired since it read the position may
        begin anywhere.
        """
        self.released.get(place[1], set()).discard(member_id)
        is_owner = self.group.owners.get(place[1]) == member_id
        if not is_owner or not self._exists(place):
            return
        self.begun_in[place] = generation
        if position < self.promised.get(place, 0):
            raise ViolationError(
                f"{member_id} begins {place[1]} at {position}, but a transaction has committed "
                f"{self.promised[place]}"
            )
        if position != self.positions.get(place, 0):
            raise ViolationError(
                f"{member_id} begins {place[1]} at {position}, but "
                f"{self.positions.get(place, 0)} is committed"
            )

    def _exists(self, place: Place) -> bool:
        """Whether the topic still exists; records of a deleted topic are not read."""
        topic = self.topics.get(place[1].topic)
        return topic is not None and topic.topic_id == place[0]
