"""Actors that rewrite and delete: the least of what issue 6 will do, by its rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from spark_log.errors import AlreadyExistsError, OffsetOutOfRangeError, StorageError
from spark_log.log import PartitionLog
from spark_log.log.file_names import SegmentName, StartMarker, parse_snapshot_name
from spark_log.log.merger import merge
from spark_log.log.partition_directory import LogView
from spark_log.log.spent_segments import spent_segments
from spark_log.storage import FileInfo
from spark_log.testing.simulation.profile import DELETE_DELAY_MS
from spark_log.testing.simulation.true_log import DIRECTORY
from spark_log.testing.simulation.world import World


class _Maintainer:
    """Does one round after the other; what fails is left for the next one."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self) -> None:
        """Do rounds until the simulation ends."""
        log = self._world.open_log()
        while not self._world.is_ending:
            self._world.rest(self._world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                self._do_round(log)

    def _do_round(self, log: PartitionLog) -> None:
        raise NotImplementedError


class Merger(_Maintainer):
    """Rewrites some of the segments that follow each other into one."""

    def _do_round(self, log: PartitionLog) -> None:
        view = log.observe()
        if view.live.segments:
            count = len(view.live.segments)
            first, last = sorted(self._world.scheduler.random.choices(range(count), k=2))
            name = self._merge(view, first, last)
            self._world.scheduler.note(f"merged into {name.log}")

    def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
        return merge(self._world.directory(), view, first, last)


class Retention(_Maintainer):
    """Moves the log's start on, to where a segment begins or into the middle of one."""

    def _do_round(self, log: PartitionLog) -> None:
        # Not by the view alone: one listing may leave out a segment in the middle, and then shows
        # the one before it as longer than it is.
        summaries, view = log.segments(log.observe())
        if view.log_start_offset == view.log_end_offset:
            return
        random = self._world.scheduler.random
        start = random.randint(view.log_start_offset + 1, view.log_end_offset)
        base = next(
            (found.name.base_offset for found in summaries if found.end_offset > start), start
        )
        if random.random() < 0.5:
            start = max(base, view.log_start_offset)
        self._save_state(log)
        marker = StartMarker(start, base)
        with suppress(AlreadyExistsError):
            self._world.store.put_if_absent(f"{DIRECTORY}/{marker.name}", b"")
        for file in self._needless_markers(list(self._world.store.list(DIRECTORY)), marker):
            self._world.store.delete(file.path)

    def _save_state(self, log: PartitionLog) -> None:
        """Keep what only the headers before the new start tell of producers."""
        log.write_snapshot()

    def _needless_markers(self, files: list[FileInfo], own: StartMarker) -> Iterator[FileInfo]:
        """Yield the markers that a higher one makes needless for long enough.

        A listing may leave out what came during it, and what went. So that it shows one of the two,
        a marker has to stay for as long as one that began before the higher one came counts.
        """
        found = [(file, marker) for file in files if (marker := StartMarker.parse(file.name))]
        highest = max(
            (marker.log_start_offset for file, marker in found if self._is_old(file)), default=0
        )
        yield from (file for file, marker in found if marker.log_start_offset < highest)

    def _is_old(self, file: FileInfo) -> bool:
        return file.modified_us <= self._world.clock.time_us() - DELETE_DELAY_MS * 1000


class Cleaner(_Maintainer):
    """Frees names that something durable has made needless for long enough."""

    def _do_round(self, log: PartitionLog) -> None:
        files = list(self._world.store.list(DIRECTORY))
        appeared_before_us = self._world.clock.time_us() - DELETE_DELAY_MS * 1000
        for name in self._spent(files, appeared_before_us):
            for file_name in (name.log, name.index, name.time_index):
                if any(file.name == file_name for file in files):
                    self._world.store.delete(f"{DIRECTORY}/{file_name}")
        snapshots = [file for file in files if parse_snapshot_name(file.name) is not None]
        for file in snapshots[:-2]:
            self._world.store.delete(file.path)

    def _spent(self, files: list[FileInfo], appeared_before_us: int) -> list[SegmentName]:
        return list(spent_segments(files, appeared_before_us))


class Vandal(_Maintainer):
    """Loses, damages, and replaces by others what is derived."""

    def _do_round(self, log: PartitionLog) -> None:
        disk, random = self._world.store.disk, self._world.scheduler.random
        # Once the start has moved, a snapshot is all that tells of producers before it.
        suffixes: tuple[str, ...] = (".index", ".timeindex")
        if not self._world.profile.retentions:
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
