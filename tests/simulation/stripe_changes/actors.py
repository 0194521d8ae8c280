"""Actors that change the number of stripes, that read, and that clean wherever the records are."""

from __future__ import annotations

from typing import Any

from spark_log.cluster import change_stripes
from spark_log.errors import InvalidConfigurationError, StorageError
from spark_log.log.rewrite import delete_found, find_deletable
from spark_log.log.stripe import free, take_home
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.stripe_changes.world import NAME, ChangesWorld, OpenLog, OpenTopic
from tests.simulation.stripes.maintenance import _Maintainer
from tests.simulation.stripes.readers import Reader


class Changer:
    """Gives the topic other numbers of stripes, and completes what a crash has left."""

    def __init__(self, world: ChangesWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Change until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        while True:
            is_ending = world.is_ending
            opened = OpenTopic(world)
            moving_to = opened.topic.moving_to
            if is_ending and moving_to is None:
                return
            stripes = random.choice((0, 1, 2, 3)) if moving_to is None else moving_to
            try:
                topic = change_stripes(opened.cluster, NAME, stripes)
            except InvalidConfigurationError:
                world.scheduler.note("another change is under way")
            except StorageError as error:
                world.scheduler.note(f"a change fails: {type(error).__name__}")
            else:
                world.scheduler.note(f"has stripes {topic.stripes}")
            if not is_ending:
                world.rest(3 * world.profile.rest_ms)


class ChangesReader(Reader):
    """A thread that reads partitions of a topic whose number of stripes changes.

    Until a process learns of a change, a partition ends for it where its old place has ended.
    """

    _world: ChangesWorld

    def _since(self, log: Any, partition: int) -> int:
        return min(super()._since(log, partition), self._shown_end(log, partition))

    def _end_for(self, log: Any, partition: int) -> int:
        shown = self._shown_end(log, partition)
        if self._is_committed:  # markers of transactions that are open there are in the new place
            opened = self._world.truth.partitions[partition].open_before(shown)
            shown = min([shown, *opened.values()])
        return min(super()._end_for(log, partition), shown)

    def _observe_polled(self, log: Any, partition: int, position: int) -> int:
        return self._observe(log, partition, position)  # a partition may have no stripe

    def _shown_end(self, log: OpenLog, partition: int) -> int:
        truth = self._world.truth
        return truth.ended.get((partition, log.epoch + 1), truth.partitions[partition].end)


class ChangesTaker(_Maintainer):
    """Takes the topic's stripes home."""

    _world: ChangesWorld

    def _do_round(self) -> None:
        world = self._world
        for directory in world.present_stripes():
            take_home(directory, world.partition_directory, max_bytes=world.profile.home_bytes)


class ChangesCleaner(_Maintainer):
    """Frees numbers of present and ended stripes, and files that merges have covered."""

    _world: ChangesWorld

    def _do_round(self) -> None:
        world, random = self._world, self._world.scheduler.random
        for directory in world.present_stripes():
            free(directory)
        partition = world.partition_directory(random.randrange(world.profile.partitions))
        delete_found(partition.store, find_deletable(partition, DELETE_DELAY_MS))
