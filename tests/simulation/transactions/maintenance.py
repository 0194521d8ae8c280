"""Actors that clean transactional ids, and the world of actors that maintain one partition."""

from __future__ import annotations

from spark_log.errors import ClockSkewError, StorageError
from spark_log.log import LocalLog
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.transaction import TopicIdPartition, TransactionCleaner
from tests.simulation.log.profile import Profile
from tests.simulation.transactions.world import OpenLogs, TransactionsWorld


class IdCleaning:
    """Cleans the transactional ids, as the clean job does."""

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Clean until the faults end."""
        world = self._world
        cluster = world.open_cluster()
        while not world.is_ending:
            world.rest(world.profile.faults.rest_ms)
            try:
                for cleaned in TransactionCleaner(cluster).clean():
                    error = "" if cleaned.error is None else f": {type(cleaned.error).__name__}"
                    world.scheduler.note(f"{cleaned.action} {cleaned.transactional_id}{error}")
            except ClockSkewError:
                world.scheduler.note("does not clean: its clock is too far off")
            except StorageError as error:
                world.scheduler.note(f"clean: {type(error).__name__}")


class PartitionWorld:
    """One partition as the world of actors that maintain a log (`simulation.log.maintenance`)."""

    def __init__(self, world: TransactionsWorld, partition: TopicIdPartition) -> None:
        self._world = world
        self._partition = partition
        self.scheduler = world.scheduler
        self.clock = world.clock
        self.store = world.store
        self.profile: Profile = world.profile.faults
        self.rest = world.rest

    @property
    def is_ending(self) -> bool:
        """Whether faults have ended."""
        return self._world.is_ending

    def open_log(self) -> LocalLog:
        """Return a new handle of the log."""
        return OpenLogs(self._world.open_cluster(), self._world.image).log(self._partition).replica

    def directory(self) -> PartitionDirectory:
        """Return a new handle of the partition's directory."""
        return self.open_log().files
