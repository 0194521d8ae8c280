"""Actors that take home, free numbers, and merge and delete files at home."""

from __future__ import annotations

from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log.rewrite import delete_found, find_deletable, merge
from spark_log.log.stripe import free, take_home
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.stripes.world import StripesWorld
from tests.simulation.violation import ViolationError


class _Maintainer:
    """Does rounds of work until the simulation ends; the next round retries failed work."""

    def __init__(self, world: StripesWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Do rounds; called again after each crash."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            try:
                self._do_round()
            except CorruptRecordError as error:
                raise ViolationError(str(error)) from error
            except StorageError as error:
                world.scheduler.note(type(error).__name__)  # its path may have a random name

    def _stripe(self) -> int:
        return self._world.scheduler.random.randrange(self._world.profile.stripes)

    def _do_round(self) -> None:
        raise NotImplementedError


class Taker(_Maintainer):
    """Takes stripes home."""

    def _do_round(self) -> None:
        world = self._world
        taken = take_home(
            world.directory(self._stripe()),
            world.partition_directory,
            max_bytes=world.profile.home_bytes,
        )
        world.scheduler.note(f"takes home: {taken}")


class Cleaner(_Maintainer):
    """Frees numbers, and files at home that merges have covered."""

    def _do_round(self) -> None:
        world, random = self._world, self._world.scheduler.random
        world.scheduler.note(f"frees {free(world.directory(self._stripe()))} files")
        partition = world.partition_directory(random.randrange(world.profile.partitions))
        delete_found(partition.store, find_deletable(partition, DELETE_DELAY_MS))


class Merger(_Maintainer):
    """Merges random runs of adjacent segments at home."""

    def _do_round(self) -> None:
        world, random = self._world, self._world.scheduler.random
        partition = world.partition_directory(random.randrange(world.profile.partitions))
        view = partition.observe()
        if view.live.segments:
            first, last = sorted(random.choices(range(len(view.live.segments)), k=2))
            merge(partition, view, first, last)
