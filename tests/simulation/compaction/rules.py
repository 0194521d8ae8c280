"""Variants of the cleaner without one of the safety rules of compacted logs (ADR 16)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from spark_log.errors import AlreadyExistsError
from spark_log.log.clean import compactor, log_to_clean
from spark_log.log.clean.batch_filter import BatchFilter
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.directory.log_view import LogView
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files import live_log
from spark_log.log.files.file_names import SegmentName, generation_name, parse_generation_name
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite import file_deletion
from spark_log.record.batch_header import BatchHeader
from spark_log.storage import FileInfo
from tests.simulation.compaction.actors import CompactedWorld
from tests.simulation.patches import PatchVariant


def _widest_first(name: SegmentName) -> tuple[int, int]:
    assert name.last_offset is not None
    return name.last_offset - name.base_offset, name.generation


def _takes_any(directory: PartitionDirectory, view: LogView) -> int:
    """Takes any free generation, even if other compactions have read the log since."""
    generation = view.live.compaction_generation
    while True:
        generation += 1
        try:
            path = directory.file_path(generation_name(generation))
            directory.store.put_if_absent(path, os.urandom(16))
        except AlreadyExistsError:
            continue
        return generation


def _clean_is_what_any_wrote(view: LogView) -> int:
    end_offset = view.log_start_offset
    for segment in view.live.segments:
        if not segment.name.is_compacted or segment.name.last_offset is None:
            break
        end_offset = segment.name.last_offset + 1
    return end_offset


def _never(*_: Any) -> bool:
    return False


def _past_any_horizon(self: BatchFilter, header: BatchHeader, base_offset: int) -> bool:
    has_horizon = bool(header.attributes & header.DELETE_HORIZON_BIT)
    return has_horizon and self._is_clean(header, base_offset)


def _always_clean(self: BatchFilter, header: BatchHeader, base_offset: int) -> bool:
    return True


def _nobody(*_: Any) -> tuple[frozenset[int], dict[int, int]]:
    return frozenset(), {}


def _removes_generations_at_once(files: Iterable[FileInfo], old_us: int) -> Iterator[FileInfo]:
    found = [(file, number) for file in files if (number := parse_generation_name(file.name))]
    highest = max((number for _, number in found), default=0)
    yield from (file for file, number in found if number < highest)


def _finds_whole_appends_only(self: ProducerState, append: Any, record_count: int) -> int | None:
    entry = self._entries.get(append.producer_id)
    if entry is None or entry.epoch != append.producer_epoch:
        return None
    offsets = (run.offset_of(append.base_sequence, record_count) for run in entry.runs)
    return next((offset for offset in offsets if offset is not None), None)


_shipped_time_us = PartitionCleaner._storage_time_us


def _own_time_us(self: PartitionCleaner) -> int:
    _shipped_time_us(self)
    return self._log.clock.time_us()


COMPACTION_RULES: dict[str, PatchVariant] = {
    "the highest generation counts, not the widest": PatchVariant(
        ((live_log, "_preference", _widest_first),)
    ),
    "a merge leaves alone what a compaction wrote": PatchVariant(
        ((SegmentName, "is_compacted", False),)
    ),
    "a compaction takes the generation that follows its look": PatchVariant(
        ((compactor, "take_generation", _takes_any),)
    ),
    "clean is what the newest compaction wrote": PatchVariant(
        ((log_to_clean, "first_dirty_offset", _clean_is_what_any_wrote),)
    ),
    "between two compactions the delay passes": PatchVariant(
        ((compactor, "is_recently_compacted", _never),)
    ),
    "tombstones stay for their time": PatchVariant(
        ((BatchFilter, "_is_past_horizon", _past_any_horizon),)
    ),
    "tombstones go by the storage's time": PatchVariant(
        (
            (PartitionCleaner, "_storage_time_us", _own_time_us),
            (CompactedWorld, "storage_time_us", lambda world: world.clock.time_us()),
        )
    ),
    "tombstones stay where anything is dirty before them": PatchVariant(
        ((BatchFilter, "_is_clean", _always_clean),)
    ),
    "the last batch of a producer stays": PatchVariant(
        ((compactor, "last_batches_of_producers", _nobody),)
    ),
    "an append is known by the end of it that is left": PatchVariant(
        ((ProducerState, "find", _finds_whole_appends_only),)
    ),
    "a taken generation is shown until a higher one has stood": PatchVariant(
        ((file_deletion, "_superseded_generations", _removes_generations_at_once),)
    ),
}
"""The name of each safety rule, and the variant without it."""
