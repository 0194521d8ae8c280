"""The simulation of topics that are created, deleted and cleaned up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from unittest import mock

import pyarrow as pa

from spark_log.admin import topics as admin_module
from spark_log.cluster import cleaner as cluster_cleaner
from spark_log.cluster import cluster as cluster_module
from spark_log.cluster import root_creation, topic_deletion
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.cluster.topic_deletion import DeletedTopic
from spark_log.config import ClusterConfig
from spark_log.errors import ClockSkewError, CorruptRecordError, SparkLogError, StorageError
from spark_log.log import PartitionLog
from spark_log.log.clean import cleaner
from spark_log.metadata import metadata_log
from spark_log.metadata.image import MetadataImage
from spark_log.storage import DELETION_MARKERS, WITNESSES, Store
from spark_log.types import NewTopic
from tests.simulation.deletion.world import (
    TOPIC_SETTINGS,
    UNKNOWN,
    Root,
    RootDisk,
    RootStore,
    TrueTopics,
    draw_id,
)
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.log.records import Record, record_batch
from tests.simulation.patches import Patch, PatchVariant
from tests.simulation.same_thread import call_at_once
from tests.simulation.scheduler import START_US, Scheduler, SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_NAMES = ("a", "b")
"""Only a few names, so that topics are created again under the same name."""

_PARTITIONS = 2
DELETION_SOUND = PatchVariant()
"""The shipped code."""


def draw_deletion_profile(random: Random) -> Profile:
    """Draw the conditions of a simulation."""
    return replace(
        draw_profile(random),
        latency_ms=DELETE_DELAY_MS / random.choice((40, 200)),
        writers=random.choice((1, 2)),
        retentions=random.choice((1, 2)),
        cleaners=random.choice((1, 2)),
        think_ms=DELETE_DELAY_MS * random.choice((0.05, 0.3, 1)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.1, 0.5)),
        range_bytes=0,
        steps=random.choice((300, 600)),
    )


def _replaced(scheduler: Scheduler, store: RootStore, clock: WallClocks) -> tuple[Patch, ...]:
    """Return patches that put the store, ids and small numbers below `Cluster` and `Admin`.

    Both open their store and draw ids by themselves, as users have them do, and a user's clean
    command does not choose how many segments a merge needs.
    """
    limits = ClusterConfig(max_clock_skew_ms=clock.max_skew_ms)

    def new_id() -> str:
        return draw_id(scheduler.random)

    return (
        (cluster_module, "open_store", lambda url, options=None, **_: store),
        (root_creation, "random_id", new_id),
        (admin_module, "random_id", new_id),
        (cluster_cleaner, "PartitionCleaner", partial(cleaner.PartitionCleaner, fan_in=2)),
        (cluster_cleaner, "call_beside", call_at_once),
        (MetadataImage, "cluster_config", lambda image: limits),
    )


# --- actors --------------------------------------------------------------------------------------


class _Actor:
    """Does actions until the simulation ends; storage errors end an action."""

    def __init__(self, root: Root) -> None:
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


class Appender(_Actor):
    """Appends to topics, also long after their deletion."""

    def __init__(self, root: Root, name: str) -> None:
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


def clean(root: Root) -> None:
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


# --- the course of it ----------------------------------------------------------------------------


class DeletionSimulation(Simulation):
    """Topics of one root that are created, appended to, deleted and cleaned up."""

    profile: Profile
    world: Root

    def __init__(self, seed: int, variant: PatchVariant = DELETION_SOUND) -> None:
        """Return a simulation of the shipped package, or of one without a safety rule."""
        profile = draw_deletion_profile(Random(seed))
        super().__init__(seed, profile, profile, profile.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        disk = RootDisk(storage_clock)
        topics = TrueTopics(disk, storage_clock)
        store = RootStore(disk, self.scheduler, topics, profile, clock)
        self.world = Root(self.scheduler, clock, disk, store, topics, profile)
        self.patches = (*_replaced(self.scheduler, store, clock), *variant.patches)

    @property
    def records(self) -> int:
        """Number of topics that were created."""
        return len(self.world.topics.known) + len(self.world.topics.deleted)

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        root = self.world
        profile, spawn = root.profile, root.scheduler.spawn_mortal
        for number in range(profile.retentions):
            spawn(f"founder {number}", Founder(root).run)
        for number in range(profile.writers):
            spawn(f"appender {number}", Appender(root, f"a{number}").run)
        for number in range(profile.cleaners):
            spawn(f"cleaner {number}", RootCleaner(root).run)

    def settle(self) -> None:
        """Run to the end, with all late copies, and clean once more."""
        self.run_to_end()
        clean(self.world)

    def check_end(self) -> None:
        """Check that each existing topic is complete, and nothing of a deleted one is left."""
        root = self.world
        cluster = root.cluster()
        topics = {topic.directory: topic for topic in cluster.image().topics()}
        if topics.keys() != root.topics.known:
            raise ViolationError(f"there are {sorted(topics)}, not {sorted(root.topics.known)}")
        internal = {"", metadata_log.METADATA_DIRECTORY, DELETION_MARKERS, WITNESSES}
        for path in root.disk.paths_below(""):
            directory = path.rpartition("/")[0].partition("/")[0]
            if directory not in internal | topics.keys() | {UNKNOWN}:
                raise ViolationError(f"{path} is left of a deleted topic")
        if root.disk.is_begun and not root.disk.paths_below(UNKNOWN):
            raise ViolationError(f"{UNKNOWN} was removed, although no topic of that id was deleted")
        for (directory, number), values in root.acknowledged.items():
            if directory in topics:
                log = cluster.partition_log(topics[directory], number)
                batches = list(log.scan(0))
                found = {value for batch in batches for value in _values(batch.records)}
                if not values <= found:
                    raise ViolationError(f"{sorted(values - found)} of {directory} are lost")


def _values(records: pa.RecordBatch) -> Sequence[bytes]:
    values: list[bytes] = records.column("value").to_pylist()
    return values


# --- rules ---------------------------------------------------------------------------------------


def _marks_nothing(*_: object) -> None:
    pass


class _RemembersTheMetadata(ClusterCleaner):
    """Takes topics for deleted that did not exist when it began."""

    def __init__(self, cluster: cluster_module.Cluster) -> None:
        super().__init__(cluster)
        self._image = cluster.image()

    def deleted_topics(self) -> Iterator[DeletedTopic]:
        with mock.patch.object(self._cluster, "image", return_value=self._image):
            yield from super().deleted_topics()


def _own_time_us(store: Store, directory: str) -> int:
    """Return the time of whoever asks, where the storage's is asked for."""
    assert isinstance(store, RootStore)
    return store.clock.time_us()


def _removes_all_unknown(cluster: cluster_module.Cluster, *, dry_run: bool) -> list[DeletedTopic]:
    found = list(cluster.store.list_directories(""))
    known = {topic.directory for topic in cluster.image().topics()}
    for directory in found:
        if directory not in {
            *known,
            metadata_log.METADATA_DIRECTORY,
            DELETION_MARKERS,
        }:
            cluster.store.delete_directory(directory)
    return []


DELETION_RULES: dict[str, PatchVariant] = {
    "a deletion is marked before it is made": PatchVariant(
        ((admin_module, "mark_deleted", _marks_nothing),)
    ),
    "metadata are looked at after the markers": PatchVariant(
        ((sys.modules[__name__], "ClusterCleaner", _RemembersTheMetadata),)
    ),
    "a marker goes by the storage's time": PatchVariant(
        ((topic_deletion, "storage_time_us", _own_time_us),)
    ),
    "who has the time wrong cleans nothing": PatchVariant(
        (
            (cleaner, "check_clock_skew", _marks_nothing),
            (topic_deletion, "check_clock_skew", _marks_nothing),
        )
    ),
    "only what is marked is removed": PatchVariant(
        ((cluster_cleaner, "finish_deletions", _removes_all_unknown),)
    ),
}
"""The name of each safety rule, and the variant without it."""
