"""The simulated root for topic deletion: its store, and the model of its topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from spark_log.admin import Admin
from spark_log.cluster import Cluster
from spark_log.metadata import metadata_log
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.storage import WITNESSES
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

UNKNOWN = "restored.AAAAAAAAAAAAAAAAAAAAAA"
"""A topic's directory that never was in the metadata; it must not be removed."""

_ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"


class TrueTopics:
    """The model of the root's topics, derived from the metadata log at each moment.

    Attributes:
        known: directories of the existing topics.
        deleted: directories of the deleted topics.
    """

    def __init__(self, disk: SimulatedDisk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self.known: set[str] = set()
        self.deleted: set[str] = set()

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: the metadata may change."""
        directory, _, name = path.rpartition("/")
        if directory == metadata_log.METADATA_DIRECTORY and name.endswith(".log"):
            image = MetadataLog(self._disk, self._clock).image()
            now = {topic.directory for topic in image.topics()}
            self.deleted |= self.known - now
            self.known = now

    def on_file_deleted(self, path: str) -> None:
        """Ignore the deletion of a log's file: the simulation of the log checks it."""

    def on_data_deleted(self, path: str) -> None:
        """Check that a file was removed with the directory of a deleted topic."""
        directory = path.removeprefix(f"{WITNESSES}/").partition("/")[0]
        if directory not in self.deleted:
            raise ViolationError(f"{path} was removed, but its topic was not deleted")


class RootDisk(SimulatedDisk):
    """The files of a root that is empty but for a directory that the metadata do not know."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        for path in self.paths_below(""):
            self.delete(path)
        self.is_begun = False

    def paths_below(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted."""
        prefix = f"{directory}/" if directory else ""
        return sorted(path for path in self._files.data if path.startswith(prefix))

    def _set(self, path: str, data: pa.Buffer) -> None:
        super()._set(path, data)
        if not self.is_begun and path.startswith(metadata_log.METADATA_DIRECTORY):
            self.is_begun = (
                True  # otherwise it would look like a root with topics that has lost its metadata
            )
            self._set(f"{UNKNOWN}/restored-0/00000000000000000000.log", pa.py_buffer(b""))

    def has(self, path: str) -> bool:
        """Return whether a file exists."""
        return path in self._files.data


class RootStore(SimulatedStore):
    """A simulated store of a whole root: directories are removed file by file.

    Attributes:
        clock: the clock of the actors; not the storage's.
    """

    def __init__(
        self,
        disk: RootDisk,
        scheduler: Scheduler,
        topics: TrueTopics,
        profile: Profile,
        clock: Clock,
    ) -> None:
        super().__init__(disk, scheduler, topics, profile)
        self.clock = clock
        self._root_disk = disk
        self._topics = topics

    def list_directories(self, directory: str) -> Iterator[str]:
        """List the directories in a directory; a step."""
        names = self._read("directories", directory, lambda: self.disk.list_directories(directory))
        return iter(sorted(names))

    def delete_directory(self, directory: str) -> None:
        """Delete a directory file by file; files that are created meanwhile may remain."""
        for path in self._root_disk.paths_below(directory):

            def remove(path: str = path) -> None:
                if self._root_disk.has(path):
                    self._topics.on_data_deleted(path)
                self.disk.delete(path)

            self._write("remove", path, remove)


@dataclass(slots=True)
class DeletionWorld:
    """The state that the actors of one simulation share.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        disk: the files.
        store: the store that actors use.
        topics: the model that results are checked against.
        profile: the conditions.
        is_ending: faults have ended, and actors begin no new work.
        acknowledged: acknowledged values, by directory and partition.
    """

    scheduler: Scheduler
    clock: WallClocks
    disk: RootDisk
    store: RootStore
    topics: TrueTopics
    profile: Profile
    is_ending: bool = False
    acknowledged: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        """Return a new handle of the cluster, as a new process has it."""
        return Cluster(self.store.url, clock=self.clock, create=True)

    def admin(self) -> Admin:
        """Return a new `Admin` of the root."""
        return Admin(self.store.url, clock=self.clock)

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.without_faults()
        self.is_ending = True

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))


def draw_id(random: Random) -> str:
    """Draw a topic id from the seed."""
    return "".join(random.choices(_ID_CHARACTERS, k=21)) + "A"


TOPIC_SETTINGS = {
    "file.delete.delay.ms": str(DELETE_DELAY_MS),
    "flush.on.append": "false",
    "merge.tail.segments": "3",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""The configs of every topic of a simulation."""
