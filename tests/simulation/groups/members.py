"""Actors of a simulated group: members that consume, and an administrator of topics."""

from __future__ import annotations

from contextlib import suppress

from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group import GroupTopic
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.coordinator.group.status import MemberStatus
from spark_log.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    StorageError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.transactions import SimulatedTransactions
from tests.simulation.groups.true_group import GROUP_ID, Place
from tests.simulation.groups.world import GroupWorld

_LATE_CHANCE = 0.05
_AGAIN_CHANCE = 0.5
_MAX_TOPICS = 3
_MAX_PARTITIONS = 6


class SimulatedMember:
    """Joins, polls, commits, releases partitions and leaves, repeatedly.

    Attributes:
        name: its instance id, if it is a static member.
        reading: its position in each partition that it reads.
        is_member: whether it has joined, and has not learned that it was removed.
        is_dead: whether it has crashed for good.
    """

    def __init__(self, world: GroupWorld, name: str, instance_id: str | None = None) -> None:
        self.name = name
        self.reading: dict[Place, int] = {}
        self.is_member = False
        self.is_dead = False
        self.status: MemberStatus | None = None
        self._world = world
        self._instance_id = instance_id
        self._is_back = False
        self._coordinator: GroupCoordinator
        self._commits: MemberCommits[int]
        self._transactions: SimulatedTransactions | None = None

    def run(self) -> None:
        """Work until the simulation is over; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        self.reading, self.is_member, self.status = {}, False, None
        if self._is_back and random.random() < world.profile.die:
            self.is_dead = True
            world.scheduler.note("never comes back")
            return
        self._is_back = True
        self._coordinator = world.open_coordinator()
        self._transactions = (
            SimulatedTransactions(world, self.name) if world.profile.transactions else None
        )
        self._commits = world.commits_class(
            world.offsets,
            GROUP_ID,
            self._coordinator.status,
            self._refreshed,
            self._transactions.offsets.settle if self._transactions else None,
        )
        while not world.is_over:
            try:
                self._live()
            except FencedInstanceIdError:
                world.scheduler.note("is fenced")
                self._lose_all()
                if world.is_ending:
                    self.is_dead = True
                    return
                world.scheduler.pass_time(4 * SESSION_TIMEOUT_MS * random.random())
            except UnknownMemberIdError:
                world.scheduler.note("is not a member any more")
                self._lose_all()
            except (StorageError, CommitFailedError, UnstableOffsetCommitError) as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _live(self) -> None:
        world, random = self._world, self._world.scheduler.random
        if not self.is_member:
            self._join()
        while not world.is_over:
            world.rest(world.profile.poll_ms)
            self._poll()
            if world.is_ending:
                continue
            if random.random() < world.profile.leave:
                self._leave()
                return
            if random.random() < world.profile.resubscribe:
                self._join()

    def _join(self) -> None:
        random = self._world.scheduler.random
        by_pattern = random.random() < 0.3
        names = sorted({f"topic{random.randrange(_MAX_TOPICS)}" for _ in range(3)})
        self.status = self._coordinator.join(
            () if by_pattern else names,
            pattern="topic" if by_pattern else None,
            assignors=self._world.profile.assignors,
            instance_id=self._instance_id,
            client_id=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        self.is_member = True
        self._world.scheduler.note(f"joined: {self.status.generation}")

    def _leave(self) -> None:
        with suppress(StorageError, CommitFailedError):
            self._commit()
        self._lose_all()
        with suppress(StorageError):
            self._coordinator.leave(is_final=self._world.scheduler.random.random() < 0.7)
        self._coordinator.forget()
        random = self._world.scheduler.random
        self._world.scheduler.pass_time(3 * SESSION_TIMEOUT_MS * random.random())

    def _lose_all(self) -> None:
        self.reading, self.is_member, self.status = {}, False, None
        self._coordinator.forget()

    def _refreshed(self) -> MemberStatus:
        self._coordinator.describe()
        return self._coordinator.status()

    def _poll(self) -> None:
        world, random = self._world, self._world.scheduler.random
        status = self.status = self._coordinator.heartbeat()
        if random.random() < _LATE_CHANCE:
            self._commit()  # by a member that has not seen the change yet
        held = self._places(status, status.held)
        for place in [place for place in self.reading if place not in held]:
            del self.reading[place]  # lost
        if status.revoking:
            self._revoke(status)
        given = self._places(status, status.assigned).keys() - self.reading.keys()
        if given:
            self._begin(status, given)
        for place in self.reading:
            self.reading[place] += random.randrange(3)
            world.truth.on_handled(place, self.reading[place])
        if random.random() < world.profile.commit:
            self._commit()

    def _revoke(self, status: MemberStatus) -> None:
        with suppress(CommitFailedError, StorageError):
            self._commit()
        for place in self._places(status, status.revoking):
            self.reading.pop(place, None)
        for partition in status.revoking:
            self._world.truth.released.setdefault(partition, set()).add(status.member_id)
        self._coordinator.release(status.revoking)

    def _begin(self, status: MemberStatus, given: set[Place]) -> None:
        found = self._commits.begin([partition for _, partition in given])
        now = self._coordinator.status()
        for place in sorted(self._places(now, now.assigned).keys() & given):
            # The position is of the topic's current incarnation.
            position = found.get(place[1]) or 0
            self._world.truth.check_begun(place, position, now.member_id, now.generation)
            self.reading[place] = position
            self._world.scheduler.note(f"begins {place[1]} at {position}")

    def _commit(self) -> None:
        if not self.reading:
            return
        offsets = {named: OffsetAndMetadata(at) for (_, named), at in self.reading.items()}
        topic_ids = {named.topic: topic_id for topic_id, named in self.reading}
        random = self._world.scheduler.random
        if self._transactions and random.random() < self._world.profile.transactions:
            self._transactions.commit(self._coordinator.status(), self.reading)
            return
        self._commits.commit(offsets, topic_ids)

    @staticmethod
    def _places(
        status: MemberStatus, partitions: frozenset[TopicPartition]
    ) -> dict[Place, TopicPartition]:
        return {(status.topics[each.topic].topic_id, each): each for each in partitions}


class TopicChanger:
    """Creates topics, adds partitions, deletes topics, and creates them again."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._count = 0

    def run(self) -> None:
        """Change topics until the faults end."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.topics_change_ms)
            if not world.is_ending:
                self.change()

    def change(self) -> None:
        """Change a random topic."""
        random, truth = self._world.scheduler.random, self._world.truth
        name = f"topic{random.randrange(_MAX_TOPICS)}"
        topic = truth.topics.get(name)
        if topic is None:
            self.create(name)
        elif random.random() < 0.3:
            truth.set_topic(name, None)
            self._world.scheduler.note(f"deletes {name}")
            if random.random() < _AGAIN_CHANCE:
                self.create(name)
        elif topic.partitions < _MAX_PARTITIONS:
            truth.set_topic(name, GroupTopic(topic.topic_id, topic.partitions + 1))
            self._world.scheduler.note(f"grows {name} to {topic.partitions + 1}")

    def create(self, name: str) -> None:
        """Create a topic."""
        self._count += 1
        partitions = self._world.scheduler.random.randint(1, 4)
        self._world.truth.set_topic(name, GroupTopic(f"id{self._count}", partitions))
        self._world.scheduler.note(f"creates {name} with {partitions}")
