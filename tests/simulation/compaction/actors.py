"""Actors of a compacted log: they compact, merge and read it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from spark_log.errors import OffsetOutOfRangeError, StorageError
from spark_log.log import LocalLog
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.expired_tombstones import remove_expired_tombstones
from spark_log.log.max_timestamp import offset_of_max_timestamp
from spark_log.log.rewrite.merger import merge
from tests.simulation.compaction.compacted_log import CompactedTruth, ReadTable, keyed_records
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.maintenance import Cleaner
from tests.simulation.log.readers import only_faults
from tests.simulation.log.simulated_fetcher import SimulatedFetcher
from tests.simulation.log.world import World
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_SLEEP_CHANCE = 0.1
"""Probability that a follower sleeps until all files that it knows may be deleted."""

_SLOW_CHANCE = 0.05
"""Probability that a step of a compaction takes longer than a whole compaction of others."""


@dataclass(slots=True)
class CompactedWorld(World):
    """A world whose topic is compacted.

    Attributes:
        truth: the model; the same object as ``true_log``.
        settings: configs of the topic, in addition to those of every simulated topic.
    """

    truth: CompactedTruth = field(init=False)
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        World.__post_init__(self)
        assert isinstance(self.true_log, CompactedTruth)
        self.truth = self.true_log
        # Not parsed: the segments here are smaller than the minimum of ``segment.bytes``.
        self.config = self.config.model_copy(update=self.settings)

    def storage_time_us(self) -> int:
        """Return the time of the storage's clock."""
        return START_US + int(self.scheduler.now_ms * 1000)


class _Actor:
    def __init__(self, world: CompactedWorld) -> None:
        self._world = world


class Compactor(_Actor):
    """Compacts or removes old tombstones, again and again, and sometimes before it may."""

    def __init__(self, world: CompactedWorld, rest_ms: float) -> None:
        super().__init__(world)
        self._rest_ms = rest_ms

    def run(self) -> None:
        """Compact until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        log = world.open_log()
        while not world.is_ending:
            world.rest(self._rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                rewrite = random.choice((compact, compact, remove_expired_tombstones))
                done = rewrite(
                    log,
                    now_us=world.storage_time_us(),
                    memory_bytes=random.choice((1, 1000, 2**20)),
                    on_progress=self._step,
                )
                world.scheduler.note(
                    f"{rewrite.__name__} {done.start_offset} to {done.end_offset}: "
                    f"{done.records_read} to {done.records_written}, "
                    f"{done.tombstones_removed} tombstones removed"
                )

    def _step(self, done_bytes: int) -> None:
        """Pause at times, as a throttled cleaner does, so that others compact meanwhile."""
        if not self._world.is_ending and self._world.scheduler.random.random() < _SLOW_CHANCE:
            self._world.rest(2 * DELETE_DELAY_MS)


class TailMerging(_Actor):
    """Merges random runs of adjacent segments that no compaction wrote."""

    def run(self) -> None:
        """Merge until the simulation ends."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                view = world.directory().observe()
                segments = view.live.segments
                if segments:
                    first = last = world.scheduler.random.randrange(len(segments))
                    while last + 1 < len(segments) and world.scheduler.random.random() < 0.7:
                        last += 1
                    name = merge(world.directory(), view, first, last).name
                    world.scheduler.note(f"merged into {name.file_name}")


class ChangingCleaner(Cleaner):
    """Cleans with different topic configs each time, as if they were changed."""

    def _do_round(self, log: LocalLog) -> None:
        choice, settings = self._world.scheduler.random.choice, self._world.config
        changed = {
            "min_cleanable_dirty_ratio": choice((settings.min_cleanable_dirty_ratio, 0.0, 0.8)),
            "segment_bytes": choice((settings.segment_bytes, 2000, 2**30)),
            "compression_type": choice(("producer", "producer", "zstd")),
        }
        log.config = settings.model_copy(update=changed)
        super()._do_round(log)


class StaleCleaner(Cleaner):
    """Merges and deletes files, without knowing that the topic has become compacted."""

    stale: ClassVar[dict[str, object]] = {
        "cleanup_policy": ("delete",),
        "retention_ms": -1,
        "retention_bytes": -1,
    }

    def _do_round(self, log: LocalLog) -> None:
        log.config = log.config.model_copy(update=self.stale)
        super()._do_round(log)


class TableFollower(_Actor):
    """Reads in sequence as a consumer does, and keeps the last record of each key."""

    def run(self) -> None:
        """Read until the simulation ends and everything is read."""
        world, truth = self._world, self._world.truth
        start = world.scheduler.random.choice((truth.start, truth.end))
        fetcher = SimulatedFetcher(world, start)
        table = ReadTable(truth)
        while not (world.is_ending and fetcher.position == truth.end):
            self._poll(fetcher, table)
            if not world.is_ending and world.scheduler.random.random() < _SLEEP_CHANCE:
                world.scheduler.note("sleeps past the delay")
                world.scheduler.pass_time(DELETE_DELAY_MS * world.scheduler.random.uniform(1.2, 4))
            world.rest(world.profile.think_ms)

    def _poll(self, fetcher: SimulatedFetcher, table: ReadTable) -> None:
        scheduler, truth = self._world.scheduler, self._world.truth
        begin = fetcher.position
        try:
            rows = fetcher.poll(scheduler.random.choice((0, 0, DELETE_DELAY_MS)))
        except OffsetOutOfRangeError as error:
            scheduler.note(f"poll {begin}: goes on at {error.log_start_offset}")
            fetcher.seek(error.log_start_offset)
            table.clear()
            return
        given, end = list(keyed_records(rows)), fetcher.position
        scheduler.note(f"poll {begin}: {len(given)} records up to {end}")
        table.read(begin, given, end, began_ms=fetcher.read_began_ms, now_ms=scheduler.now_ms)
        if end > truth.end:
            raise ViolationError(f"a reader came to {end}, the log's end {truth.end}")


class TableReader(_Actor):
    """Reads from the start to the end and looks up times, with a handle of any age."""

    def run(self) -> None:
        """Read and look up until the simulation ends."""
        world = self._world
        random = world.scheduler.random
        log = world.open_log()
        while not world.is_ending:
            ask = random.choice((self._read_all, self._read_all, self._look_up, self._latest))
            with only_faults():
                ask(log)
            world.rest(world.profile.think_ms)

    def _read_all(self, log: LocalLog) -> None:
        world, truth = self._world, self._world.truth
        since, began_ms = truth.now, world.scheduler.now_ms
        try:
            view = log.observe()
            end = view.log_end_offset
            given = list(keyed_records(log.scan(view.log_start_offset, end)))
        except OffsetOutOfRangeError as error:
            truth.check_out_of_range(error.offset, since)
            return
        start = view.log_start_offset
        world.scheduler.note(f"scan {start}: {len(given)} records up to {end}")
        now_ms = world.scheduler.now_ms
        ReadTable(truth).read(start, given, end, began_ms=began_ms, now_ms=now_ms)
        truth.check_end(end, since)

    def _look_up(self, log: LocalLog) -> None:
        since = self._world.true_log.now
        timestamp_us = START_US + self._world.scheduler.random.randrange(42)
        found = log.offset_for_time(timestamp_us)
        self._world.scheduler.note(f"offset for time {timestamp_us - START_US}: {found}")
        self._world.truth.check_time_lookup(timestamp_us, found, since)

    def _latest(self, log: LocalLog) -> None:
        since = self._world.true_log.now
        found = offset_of_max_timestamp(log, log.observe())
        self._world.scheduler.note(f"offset of the largest timestamp: {found}")
        self._world.truth.check_latest(found, since)
