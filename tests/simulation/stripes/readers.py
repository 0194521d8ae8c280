"""Actors that read partitions of stripes, from any offset and by both isolation levels."""

from __future__ import annotations

from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log import LogBatch
from spark_log.log.read import IsolationLevel
from tests.simulation.stripes.world import StripesWorld
from tests.simulation.violation import ViolationError


class Reader:
    """A process that reads partitions of one stripe in sequence, and sometimes anywhere."""

    def __init__(self, world: StripesWorld, isolation_level: IsolationLevel) -> None:
        """Return an actor of a world."""
        self._world = world
        self._isolation_level: IsolationLevel = isolation_level

    def run(self) -> None:
        """Read until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        stripe = random.randrange(world.profile.stripes)
        partitions = list(world.partitions_of(stripe))
        reader = world.open_reader(partitions[0])
        positions = dict.fromkeys(partitions, 0)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            partition = random.choice(partitions)
            if random.random() < 0.1:
                positions[partition] = random.randint(0, positions[partition])
            offset, end = positions[partition], self._end(partition)
            try:
                reader.poll()
                batches, next_offset = reader.read(
                    partition,
                    offset,
                    random.choice((1, 2**20)),
                    isolation_level=self._isolation_level,
                )
            except CorruptRecordError as error:
                raise ViolationError(str(error)) from error
            except StorageError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")
                continue
            self.check(partition, offset, batches, next_offset, end)
            world.scheduler.note(f"read {partition} from {offset} to {next_offset}")
            positions[partition] = next_offset

    def check(
        self, partition: int, offset: int, batches: list[LogBatch], next_offset: int, end: int
    ) -> None:
        """Check what was read against the model."""
        truth = self._world.truth
        check = truth.check_read
        if self._isolation_level == "read_committed":
            check = truth.check_read_committed
        check(partition, offset, batches, next_offset, end)

    def _end(self, partition: int) -> int:
        true = self._world.truth.partitions[partition]
        return true.stable if self._isolation_level == "read_committed" else true.end
