"""Actors that create, fill, delete and clean the topics of a simulated root."""

from __future__ import annotations

from contextlib import suppress

from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.errors import ClockSkewError, CorruptRecordError, SparkLogError, StorageError
from spark_log.log import PartitionLog
from spark_log.types import NewTopic
from tests.simulation.deletion.world import TOPIC_SETTINGS, DeletionWorld
from tests.simulation.log.records import Record, record_batch
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_NAMES = ("a", "b")
"""Only a few names, so that topics are created again under the same name."""

_PARTITIONS = 2


class _Actor:
    """Does actions until the simulation ends; storage errors end an action."""

    def __init__(self, root: DeletionWorld) -> None:
        self._root = root
        self._count = 0

    def run(self) -> None:
        """Work until the simulation ends."""
        while not self._root.is_ending:
            self._root.rest(self._root.profile.think_ms)
            with suppress(StorageError):
                self._act()

    def _act(self) -> None:
        raise NotImplementedError


class Founder(_Actor):
    """Creates topics, and deletes them."""

    def _act(self) -> None:
        random, note = self._root.scheduler.random, self._root.scheduler.note
        name, admin = random.choice(_NAMES), self._root.admin()
        if random.random() < 0.5:
            new = NewTopic(name, _PARTITIONS, topic_configs=TOPIC_SETTINGS)
            try:
                note(f"created {name}: {admin.create_topics([new])[name]}")
            except StorageError:
                raise
            except SparkLogError as error:  # it is there
                note(f"create {name}: {type(error).__name__}")
            if random.random() < 0.5:
                return
        try:
            admin.delete_topics([name])
        except StorageError:
            raise
        except SparkLogError as error:  # it is not there
            note(f"delete {name}: {type(error).__name__}")
        else:
            note(f"deleted {name}")


class TopicAppender(_Actor):
    """Appends to topics, also long after their deletion."""

    def __init__(self, root: DeletionWorld, name: str) -> None:
        super().__init__(root)
        self._name = name
        self._logs: dict[tuple[str, int], PartitionLog] = {}

    def _act(self) -> None:
        random = self._root.scheduler.random
        if not self._logs or random.random() < 0.3:
            cluster = self._root.cluster()
            for topic in cluster.image().topics():
                for number in range(_PARTITIONS):
                    log = cluster.partition_log(topic, number)
                    self._logs.setdefault((topic.directory, number), log)
        if not self._logs:
            return
        place = random.choice(list(self._logs))
        self._count += 1
        value = f"{self._name}/{self._root.scheduler.steps}/{self._count}".encode()
        try:
            self._logs[place].append(record_batch([Record(value, START_US)]))
        except CorruptRecordError:
            # The topic is being deleted, file by file.
            if place[0] not in self._root.topics.deleted:
                raise
        else:
            self._root.scheduler.note(f"append {value!r} to {place[0]}-{place[1]}")
            self._root.acknowledged.setdefault(place, set()).add(value)


class RootCleaner(_Actor):
    """Cleans the whole root, as the clean command does."""

    def _act(self) -> None:
        self._root.rest(self._root.profile.rest_ms)
        clean(self._root)


def clean(root: DeletionWorld) -> None:
    """Clean a root once.

    Raises:
        ViolationError: the cleaner reports damage, or cleaned with a wrong clock.
        StorageError: the storage failed.
    """
    command = ClusterCleaner(root.cluster())
    there = set(root.topics.known)
    was_far_off, jump_count = root.clock.is_far_off(), root.clock.jump_count()
    is_done = False
    try:
        for cleaned in command.clean():
            # Without the metadata, the cleaner cannot know whether the topic was deleted.
            is_sure = there <= root.topics.known or root.is_ending
            if isinstance(cleaned.error, CorruptRecordError) and is_sure:
                raise ViolationError(f"{cleaned.partition} is damaged: {cleaned.error}")
            is_done |= cleaned.error is None
        for left in command.deleted_topics():
            root.scheduler.note(f"removed {left.files} files of {left.directory}")
            is_done = True
    except ClockSkewError:
        root.scheduler.note("does not clean: its clock is too far off")
    if is_done and was_far_off and jump_count == root.clock.jump_count():
        raise ViolationError("a cleaner has worked although its clock exceeds the allowed skew")
