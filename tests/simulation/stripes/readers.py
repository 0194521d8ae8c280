"""Actors that read partitions of stripes, from any offset and by both isolation levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_log.errors import CorruptRecordError, LogTruncatedError, NotFoundError, StorageError
from spark_log.log import LogBatch
from spark_log.log.directory import LogView
from spark_log.log.read import IsolationLevel
from spark_log.log.stripe import StripedLog
from tests.simulation.stripes.world import SharedProcess, StripesWorld
from tests.simulation.violation import ViolationError


class Reader:
    """A thread that reads the partitions of one stripe: mostly in sequence, and sometimes anywhere.

    Each partition is a `StripedLog`, and all of them share the stripe of the process.
    """

    def __init__(
        self,
        world: StripesWorld,
        isolation_level: IsolationLevel,
        process: SharedProcess | None = None,
    ) -> None:
        """Return an actor of a world.

        Args:
            world: the simulation's state.
            isolation_level: what it reads.
            process: the process of this thread; None for a process of its own.
        """
        self._world = world
        self._isolation_level: IsolationLevel = isolation_level
        self._process = process

    @property
    def _is_committed(self) -> bool:
        return self._isolation_level == "read_committed"

    def run(self) -> None:
        """Read until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        stripes = (self._process or SharedProcess(world)).stripes
        stripe = random.randrange(world.profile.stripes)
        partitions = list(world.partitions_of(stripe))
        logs = {partition: world.open_log(stripes, partition) for partition in partitions}
        positions = dict.fromkeys(partitions, 0)
        others = (
            self._scan,
            self._observe,
            self._observe_polled,
            self._look_at_end,
            self._look_at_transactions,
        )
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            partition = random.choice(partitions)
            if random.random() < 0.1:
                positions[partition] = random.randint(0, positions[partition])
            step: Callable[[StripedLog, int, int], int] = self._follow
            if random.random() < 0.3:
                step = random.choice(others)
            try:
                positions[partition] = step(logs[partition], partition, positions[partition])
            except (CorruptRecordError, LogTruncatedError, NotFoundError) as error:
                raise ViolationError(f"a reader was given an error: {error}") from error
            except StorageError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def check(
        self,
        partition: int,
        offset: int,
        batches: Sequence[LogBatch],
        next_offset: int,
        end: int,
    ) -> None:
        """Check what was read against the model."""
        truth = self._world.truth
        check = truth.check_read_committed if self._is_committed else truth.check_read
        check(partition, offset, batches, next_offset, end)

    def _follow(self, log: StripedLog, partition: int, position: int) -> int:
        """Read on, and return the next position."""
        end, max_bytes = (
            self._end_for(log, partition),
            self._world.scheduler.random.choice((1, 2**20)),
        )
        batches, next_offset = log.read(position, max_bytes, isolation_level=self._isolation_level)
        self.check(partition, position, batches, next_offset, end)
        self._note(f"read {partition} from {position} to {next_offset}")
        return next_offset

    def _scan(self, log: StripedLog, partition: int, position: int) -> int:
        """Read from anywhere to the end."""
        end = self._end_for(log, partition)
        begin = self._world.scheduler.random.randint(0, end)
        batches = list(log.scan(begin, isolation_level=self._isolation_level))
        next_offset = max([begin, end, *(batch.end_offset for batch in batches)])
        self.check(partition, begin, batches, next_offset, end)
        self._note(f"scan {partition} from {begin} to {next_offset}")
        return position

    def _observe(self, log: StripedLog, partition: int, position: int) -> int:
        """List the log."""
        since = self._since(log, partition)
        view = log.observe(keeps_for_next_read=self._world.scheduler.random.random() < 0.5)
        self._check_view(view, partition, since)
        return position

    def _observe_polled(self, log: StripedLog, partition: int, position: int) -> int:
        """Poll the stripe, and look at the log as one of many that share the poll."""
        since = self._world.truth.shown(partition)[0]
        log.striped.stripe.reader.poll()
        view, _ = log.files.observe_from(None, 0)
        self._check_view(view, partition, since)
        return position

    def _check_view(self, view: LogView, partition: int, since: int) -> None:
        self._note(f"observe {partition}: {view.log_start_offset} to {view.log_end_offset}")
        end = self._world.truth.partitions[partition].end
        if view.log_start_offset or not since <= view.log_end_offset <= end:
            raise ViolationError(f"{view} is shown of {partition}, which ended at {since}")

    def _look_at_end(self, log: StripedLog, partition: int, position: int) -> int:
        """Read all records, open transactions too, and ask whether the log still ends there."""
        world, true = self._world, self._world.truth
        since = self._since(log, partition)
        batches, next_offset = log.read(position)
        true.check_read(partition, position, batches, next_offset, since)
        world.rest(world.profile.think_ms / 10)
        since = self._since(log, partition)
        if log.tail_ends_at(next_offset):
            self._note(f"{partition} ends at {next_offset}")
            if next_offset < since:
                raise ViolationError(
                    f"{partition} is shown to end at {next_offset}, before {since}"
                )
        return position

    def _look_at_transactions(self, log: StripedLog, partition: int, position: int) -> int:
        """Compare the open transactions with the model."""
        true = self._world.truth.partitions[partition]
        since = self._since(log, partition)
        index = log.transactions()
        found = {each.producer_id: each.first_offset for each in index.open}
        expected = true.open_before(index.offset)
        self._note(f"{len(found)} transactions of {partition} are open")
        if found != expected or index.offset < since:
            raise ViolationError(f"open before {index.offset} are {expected}, {found} is shown")
        return position

    def _since(self, log: StripedLog, partition: int) -> int:
        """Return the offset up to which the log has to be shown from now on."""
        return self._world.truth.shown(partition)[0]

    def _end_for(self, log: StripedLog, partition: int) -> int:
        """Return the offset before which a read from now on may not end with nothing."""
        return self._world.truth.shown(partition)[self._is_committed]

    def _note(self, text: str) -> None:
        self._world.scheduler.note(text)
