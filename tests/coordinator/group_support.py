"""A cluster in memory for groups: topics that a test sets, and members on its clock."""

from itertools import count

from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group import Group
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from spark_log.types import TopicPartition
from spark_log.util.suppressed import SuppressedErrors

SESSION_MS = 6000
HEARTBEAT_MS = 1000


def unowned(group: Group) -> list[TopicPartition]:
    """The partitions of subscribed topics that no member has, sorted."""
    every = {
        TopicPartition(name, number)
        for name, topic in group.topics.items()
        for number in range(topic.partitions)
    }
    return sorted(every - group.owners.keys())


def partitions(topic, *numbers):
    return {TopicPartition(topic, number) for number in numbers}


class FakeCluster:
    """The part of a cluster that a coordinator needs; ``topics`` is name → (topic id, partitions).

    ``limits`` are cluster configs of groups: Kafka's keys and values as strings. ``stripes`` are
    those of topics, by name.
    """

    def __init__(self, store, clock, **topics):
        self.store, self.clock, self.suppressed = store, clock, SuppressedErrors()
        self.topics = {name: (f"id-{name}", number) for name, number in topics.items()}
        self.limits = {}
        self.stripes = {}
        self._ids = count()

    def image(self):
        image = MetadataImage()
        for name, value in self.limits.items():
            image.replay(
                ConfigRecord(resource_type="broker", resource_name="", name=name, value=value)
            )
        for name, (topic_id, number) in self.topics.items():
            image.replay(TopicRecord(name=name, topic_id=topic_id))
            if name in self.stripes:
                value = str(self.stripes[name])
                image.replay(
                    ConfigRecord(
                        resource_type="topic", resource_name=name, name="stripes", value=value
                    )
                )
            for partition in range(number):
                image.replay(PartitionRecord(topic_id=topic_id, partition_id=partition))
        return image

    def coordinator(self, group="g"):
        return GroupCoordinator(
            self,
            group,
            heartbeat_interval_ms=HEARTBEAT_MS,
            new_id=lambda: f"{next(self._ids):03d}",
        )

    def member(self, *topics, group="g", **how):
        """A member that has joined."""
        coordinator = self.coordinator(group)
        join(coordinator, *topics, **how)
        return coordinator


def join(coordinator, *topics, **how):
    return coordinator.join(topics, session_timeout_ms=how.pop("session_ms", SESSION_MS), **how)


def settle(*members):
    """Let all members read the group and release revoked partitions, until nothing changes."""
    while True:
        before = members[0].describe().generation
        for member in members:
            status = member.heartbeat()
            if status.revoking:
                member.release(status.revoking)
        if members[0].describe().generation == before:
            return


def assigned(member):
    return set(member.heartbeat().assigned)


def live(clock, duration_ms, *members):
    """Let time pass in which these members write heartbeats."""
    for _ in range(int(duration_ms // 250)):
        clock.advance_ms(250)
        for member in members:
            member.heartbeat()
