"""Actors that merge and delete: the shipped cleaner, and actors that do more by the same rules."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from spark_log.errors import ClockSkewError, OffsetOutOfRangeError, StorageError
from spark_log.log import LocalLog
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.directory.log_view import LogView
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.merger import merge
from spark_log.storage import StorageClock
from tests.simulation.log.true_log import DIRECTORY
from tests.simulation.log.world import World
from tests.simulation.violation import ViolationError


class _Maintainer:
    """Does rounds of work until the simulation ends; the next round retries failed work."""

    def __init__(self, world: World) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Do rounds until the simulation ends."""
        log = self._world.open_log()
        while not self._world.is_ending:
            self._world.rest(self._world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                self._do_round(log)

    def _do_round(self, log: LocalLog) -> None:
        raise NotImplementedError


class Merger(_Maintainer):
    """Merges random runs of adjacent segments, without a policy."""

    def _do_round(self, log: LocalLog) -> None:
        view = log.observe()
        if view.live.segments:
            count = len(view.live.segments)
            first, last = sorted(self._world.scheduler.random.choices(range(count), k=2))
            name = self._merge(view, first, last)
            self._world.scheduler.note(f"merged into {name.file_name}")

    def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
        return merge(self._world.directory(), view, first, last).name


class Retention(_Maintainer):
    """Deletes the records before random offsets."""

    def _do_round(self, log: LocalLog) -> None:
        summaries, view = log.segments(log.observe())
        if view.log_start_offset == view.log_end_offset:
            return
        random = self._world.scheduler.random
        start = random.randint(view.log_start_offset + 1, view.log_end_offset)
        if random.random() < 0.5:  # to the beginning of a segment
            base = next((each.name.base_offset for each in summaries if each.end_offset > start), 0)
            start = max(base, view.log_start_offset)
        self._delete_records(log, start)

    def _delete_records(self, log: LocalLog, offset: int) -> None:
        move_log_start(log, offset)


class Cleaner(_Maintainer):
    """Does the same work as the clean job.

    Attributes:
        cleaner_class: the cleaner of a log.
        storage_clock_class: the class that tells the cleaner the storage's time.
    """

    cleaner_class: ClassVar[type[PartitionCleaner]] = PartitionCleaner
    storage_clock_class: ClassVar[type[StorageClock]] = StorageClock

    def _do_round(self, log: LocalLog) -> None:
        clock = self._world.clock
        was_far_off, jump_count = clock.is_far_off(), clock.jump_count()
        cleaner = self.cleaner_class(
            log,
            fan_in=self._world.profile.fan_in,
            max_clock_skew_ms=clock.max_skew_ms,
            storage_clock=self.storage_clock_class(log.clock),
        )
        try:
            report = cleaner.clean()
        except ClockSkewError:
            self._world.scheduler.note("does not clean: its clock is too far off")
            return
        if was_far_off and jump_count == clock.jump_count():
            raise ViolationError("a cleaner has worked although its clock exceeds the allowed skew")
        self._world.scheduler.note(
            f"cleaned: {report.expired_segments} expired, {report.merged_segments} merged, "
            f"{report.deleted_files} deleted"
        )


class Vandal(_Maintainer):
    """Deletes, damages and swaps derived files: indexes and snapshots."""

    def _do_round(self, log: LocalLog) -> None:
        disk, random = self._world.store.disk, self._world.scheduler.random
        # After the log start has moved, only a snapshot knows the producers before it.
        suffixes: tuple[str, ...] = (".index", ".timeindex")
        if not self._world.profile.has_retention:
            suffixes += (".snapshot",)
        derived = [file for file in disk.list(DIRECTORY) if file.name.endswith(suffixes)]
        if not derived:
            return
        path = random.choice(derived).path
        data = bytearray(disk.open_buffer(path).to_pybytes())
        match random.randrange(4):
            case 0:
                disk.delete(path)
            case 1:
                disk.put(path, bytes(data[: random.randrange(len(data) + 1)]))
            case 2 if data:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
                disk.put(path, bytes(data))
            case _:
                suffix = path.rpartition(".")[2]
                others = [file.path for file in derived if file.name.endswith(suffix)]
                disk.put(path, disk.open_buffer(random.choice(others)))
        self._world.scheduler.note(f"damages {path.rpartition('/')[2]}")
