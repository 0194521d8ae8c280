"""The simulation of topics that are created, deleted and cleaned up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pyarrow as pa

from spark_log.admin import topics as admin_module
from spark_log.cluster import cleaner as cluster_cleaner
from spark_log.cluster import cluster as cluster_module
from spark_log.cluster import root_creation
from spark_log.config import ClusterConfig
from spark_log.log.clean import cleaner
from spark_log.metadata import metadata_log
from spark_log.metadata.image import MetadataImage
from spark_log.storage import DELETION_MARKERS, WITNESSES
from tests.simulation.deletion.actors import Founder, RootCleaner, TopicAppender, clean
from tests.simulation.deletion.world import (
    UNKNOWN,
    DeletionWorld,
    RootDisk,
    RootStore,
    TrueTopics,
    draw_id,
)
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.patches import SHIPPED, Patch, PatchVariant
from tests.simulation.same_thread import call_at_once
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks


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


class DeletionSimulation(Simulation):
    """Topics of one root that are created, appended to, deleted and cleaned up."""

    profile: Profile
    world: DeletionWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped package, or of one without a safety rule."""
        profile = draw_deletion_profile(Random(seed))
        super().__init__(seed, profile, profile, profile.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        disk = RootDisk(storage_clock)
        topics = TrueTopics(disk, storage_clock)
        store = RootStore(disk, self.scheduler, topics, profile, clock)
        self.world = DeletionWorld(self.scheduler, clock, disk, store, topics, profile)
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
            spawn(f"appender {number}", TopicAppender(root, f"a{number}").run)
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
