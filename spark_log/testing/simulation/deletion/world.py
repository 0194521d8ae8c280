"""A whole root as the simulation of topic deletion has it: its store, and the truth about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from spark_log.admin import Admin
from spark_log.clock import Clock
from spark_log.log.witness import WITNESSES
from spark_log.metadata import Cluster, metadata_log
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS, Profile
from spark_log.testing.simulation.log.true_log import ViolationError
from spark_log.testing.simulation.scheduler import Scheduler
from spark_log.testing.simulation.store import SimulatedDisk, SimulatedStore
from spark_log.testing.simulation.wall_clocks import WallClocks

UNKNOWN = "restored.AAAAAAAAAAAAAAAAAAAAAA"
"""A directory of which the metadata do not know, and that nobody has deleted."""

_ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"


class TrueTopics:
    """Which topics there are, told by what the metadata log holds at each moment.

    Attributes:
        known: directories of the topics that there are.
        deleted: of those that there were.
    """

    def __init__(self, disk: SimulatedDisk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self.known: set[str] = set()
        self.deleted: set[str] = set()

    def file_appeared(self, path: str) -> None:
        """See `Witness`."""
        directory, _, name = path.rpartition("/")
        if directory == metadata_log.DIRECTORY and name.endswith(".log"):
            image = MetadataLog(self._disk, self._clock).image()
            now = {topic.directory for topic in image.topics()}
            self.deleted |= self.known - now
            self.known = now

    def file_vanished(self, path: str) -> None:
        """See `Witness`: what a cleaner deletes of a log is another simulation's."""

    def data_removed(self, path: str) -> None:
        """Check that a file was removed with all others of a topic that was deleted."""
        directory = path.removeprefix(f"{WITNESSES}/").partition("/")[0]
        if directory not in self.deleted:
            raise ViolationError(f"{path} was removed, but nobody has deleted its topic")


class RootDisk(SimulatedDisk):
    """The files of a root; an empty one but for a directory of which nobody knows."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        for path in self.paths_below(""):
            self.delete(path)
        self.is_begun = False

    def paths_below(self, directory: str) -> list[str]:
        """Return all files below a directory, in order."""
        prefix = f"{directory}/" if directory else ""
        return sorted(path for path in self._files.data if path.startswith(prefix))

    def _set(self, path: str, data: pa.Buffer) -> None:
        super()._set(path, data)
        if not self.is_begun and path.startswith(metadata_log.DIRECTORY):
            self.is_begun = True  # before, a root with topics would have lost its metadata
            self._set(f"{UNKNOWN}/restored-0/00000000000000000000.log", pa.py_buffer(b""))

    def has(self, path: str) -> bool:
        """Return whether there is such a file."""
        return path in self._files.data


class RootStore(SimulatedStore):
    """A simulated store of a whole root: directories are removed file by file."""

    def __init__(
        self, disk: RootDisk, scheduler: Scheduler, topics: TrueTopics, profile: Profile
    ) -> None:
        super().__init__(disk, scheduler, topics, profile)
        self._root_disk = disk
        self._topics = topics

    def list_directories(self, directory: str) -> Iterator[str]:
        """See `Store.list_directories`."""
        names = self._read("directories", directory, lambda: self.disk.list_directories(directory))
        return iter(sorted(names))

    def delete_directory(self, directory: str) -> None:
        """See `Store.delete_directory`: whoever comes in between is seen or not."""
        for path in self._root_disk.paths_below(directory):

            def remove(path: str = path) -> None:
                if self._root_disk.has(path):
                    self._topics.data_removed(path)
                self.disk.delete(path)

            self._write("remove", path, remove)


@dataclass(slots=True)
class Root:
    """Everything that the actors of one simulation share.

    Attributes:
        scheduler: whose turn it is.
        clock: what actors read the time from.
        disk: the files.
        store: what actors use.
        topics: what they are held against.
        profile: its conditions.
        is_ending: faults have ended, and no new work is begun.
        acknowledged: values that topics have, by directory and partition.
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
        """Return a handle that remembers nothing."""
        return Cluster(self.store.url, clock=self.clock, create=True)

    def admin(self) -> Admin:
        """Return another."""
        return Admin(self.store.url, clock=self.clock)

    def rest(self, mean_ms: float) -> None:
        """Let about so much time pass."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))


def draw_id(random: Random) -> str:
    """Return a topic's id, of the seed's choice."""
    return "".join(random.choices(_ID_CHARACTERS, k=21)) + "A"


TOPIC_SETTINGS = {
    "file.delete.delay.ms": str(DELETE_DELAY_MS),
    "flush.on.append": "false",
    "merge.tail.segments": "3",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Of every topic of a simulation."""
