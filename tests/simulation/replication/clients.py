"""Actors that write and read the partition, as producers and consumers do."""

from __future__ import annotations

from collections.abc import Sequence

from spark_log.errors import (
    CorruptRecordError,
    LogEndOffsetMismatchError,
    NotEnoughReplicasAfterAppendError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ReplicationError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import ALL, LogAppendInfo
from spark_log.record import ProducerAppend
from spark_log.record.producer_append import sequence_after
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import Record, record_batch
from tests.simulation.replication.true_replicas import rows_of
from tests.simulation.replication.world import OpenPartition, ReplicationWorld
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_SKIP_CHANCE = 0.2
"""Probability that a writer gives up a failed append, and continues as a new producer."""

_NEW_PRODUCER_CHANCE = 0.3
"""Probability that a writer is a new producer after a crash, and does not repeat its append."""

_FAILURES = (StorageError, ReplicationError, CorruptRecordError)
"""Errors that roots cause, after which a client tries again."""


class _Client:
    """Opens the partition again after each crash."""

    def __init__(self, world: ReplicationWorld, name: str = "") -> None:
        """Return an actor of a world, whose records carry its name."""
        self._world = world
        self._name = name

    def run(self) -> None:
        """Work until the simulation ends."""
        world = self._world
        opened = OpenPartition(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            self._work(opened)

    def _work(self, opened: OpenPartition) -> None:
        raise NotImplementedError

    def _append(
        self,
        opened: OpenPartition,
        values: Sequence[bytes],
        producer: ProducerAppend | None = None,
        *,
        acks: int = ALL,
        expected_end_offset: int | None = None,
    ) -> LogAppendInfo:
        writer = opened.log.segment_writer(producer=producer)
        try:
            writer.write(record_batch([Record(value, START_US) for value in values]))
            info = opened.log.append_segment(
                writer.finish(), acks=acks, expected_end_offset=expected_end_offset
            )
        finally:
            writer.discard()
        self._world.scheduler.note(f"append {values[0]!r}: at {info.base_offset}, {acks=}")
        if acks == ALL:
            self._world.truth.check_appended(values, info)
        if expected_end_offset not in (None, info.base_offset):
            raise ViolationError(f"{values[0]!r} was appended at {info.base_offset}")
        return info

    def _note(self, what: str, error: Exception) -> None:
        # The text of an error may have random ids, which are not from the seed.
        self._world.scheduler.note(f"{what}: {type(error).__name__}")


class IdempotentWriter(_Client):
    """Appends until each batch is acknowledged by all in-sync replicas, or given up.

    After some batches a writer may require only the leader's acknowledgement.
    """

    batches_for_all: float = float("inf")
    _begun: Sequence[bytes] = ()

    def run(self) -> None:
        """Begin as a new producer; or repeat the append before a crash, as a Spark task does."""
        if not self._begun or self._world.chance(_NEW_PRODUCER_CHANCE):
            self._begin()
        super().run()

    def _begin(self) -> None:
        self._begun = ()
        self._producer_id = next(self._world.producer_ids)
        self._sequence = 0
        self._batches = 0

    def _work(self, opened: OpenPartition) -> None:
        world = self._world
        values = self._begun = self._begun or world.draw_values(self._name)
        acks = ALL if self._batches < self.batches_for_all else 1
        producer = ProducerAppend(self._producer_id, 0, self._sequence)
        while True:
            try:
                self._append(opened, values, producer, acks=acks)
                break
            except OutOfOrderSequenceError as error:
                if self._batches <= self.batches_for_all:
                    raise ViolationError(f"a record before {values[0]!r} is lost") from error
                self._note(f"append {values[0]!r}", error)
                self._begin()
                return
            except _FAILURES as error:
                self._note(f"append {values[0]!r}", error)
                if world.chance(_SKIP_CHANCE):
                    self._begin()
                    return
                world.rest(world.profile.faults.latency_ms)
        self._begun = ()
        self._batches += 1
        self._sequence = sequence_after(self._sequence, len(values))
        if acks != ALL and world.chance(0.5):
            try:
                opened.log.catch_up()
            except _FAILURES as error:
                self._note("catch up", error)


class LeaderWriter(IdempotentWriter):
    """Waits for all in-sync replicas only at first."""

    batches_for_all = 3


class PlainWriter(_Client):
    """Appends once, without a producer; sometimes at an expected offset."""

    def _work(self, opened: OpenPartition) -> None:
        world = self._world
        values = world.draw_values(self._name)
        try:
            expected = opened.log.observe().log_end_offset if world.chance(0.5) else None
            self._append(opened, values, expected_end_offset=expected)
        except (UnknownOutcomeError, NotEnoughReplicasAfterAppendError) as error:
            self._note(f"append {values[0]!r}", error)
        except (LogEndOffsetMismatchError, *_FAILURES) as error:
            self._note(f"append {values[0]!r} is refused", error)
            world.truth.check_refused(values)


class Follower(_Client):
    """Reads on from offset 0, and must see every record."""

    def run(self) -> None:
        """Read until the simulation ends and everything is read."""
        world, position = self._world, 0
        opened = OpenPartition(world)
        while not (world.is_ending and position >= world.truth.leader_end() >= 0):
            world.rest(world.profile.think_ms)
            begin = position
            try:
                for batch, next_offset in opened.log.stream(position):
                    rows = [] if batch is None else rows_of(batch)
                    world.truth.check_read(position, next_offset, rows)
                    position = next_offset
            except OffsetOutOfRangeError as error:
                world.truth.check_out_of_range(error)
                world.scheduler.note(f"read {position}: begins again at {error.log_start_offset}")
                begin = position = error.log_start_offset
            except _FAILURES as error:
                self._note(f"read {position}", error)
            world.scheduler.note(f"has read {begin} to {position}")


class Scanner(_Client):
    """Opens the log again for each read, from some offset to the end that it finds."""

    def _work(self, opened: OpenPartition) -> None:
        world, random = self._world, self._world.scheduler.random
        acknowledged = world.truth.acknowledged_end
        opened = OpenPartition(world)
        begin = 0
        try:
            view = opened.log.observe()
            world.scheduler.note(f"observe: {view.log_end_offset}")
            world.truth.check_extent(view.log_start_offset, view.log_end_offset, acknowledged)
            begin = random.randint(view.log_start_offset, view.log_end_offset)
            if world.chance(0.3):
                world.rest(DELETE_DELAY_MS)
            rows = []
            for batch in opened.log.scan(begin, view.log_end_offset):
                rows += rows_of(batch)
            world.truth.check_read(begin, view.log_end_offset, rows)
        except OffsetOutOfRangeError as error:
            world.truth.check_out_of_range(error)
        except _FAILURES as error:
            self._note("scan", error)


def read_all(world: ReplicationWorld) -> None:
    """Read the whole log with a new handle."""
    opened = OpenPartition(world)
    view = opened.log.observe()
    start, end = view.log_start_offset, view.log_end_offset
    if end != world.truth.leader_end():
        raise SparkLogError(f"the log is read up to {end} of {world.truth.leader_end()}")
    rows = [row for batch in opened.log.scan(start) for row in rows_of(batch)]
    world.truth.check_read(start, end, rows)
