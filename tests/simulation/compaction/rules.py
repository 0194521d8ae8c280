"""Variants of the cleaner without one of the safety rules of compacted logs (ADR 16)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from spark_log.errors import AlreadyExistsError
from spark_log.log.clean import compactor, log_to_clean
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.delete_horizons import DeleteHorizons, has_horizon
from spark_log.log.directory.log_view import DirectoryListing, LogView
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import SegmentName, generation_name, parse_generation_name
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite.file_deletion import DeletableFiles
from spark_log.record.batch_header import BatchHeader
from tests.simulation.compaction.actors import CompactedWorld
from tests.simulation.log.maintenance import Cleaner
from tests.simulation.patches import PatchVariant
from tests.simulation.wall_clocks import OwnTime


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


class _PassAtOnce(DeleteHorizons):
    def has_passed(self, header: BatchHeader, base_offset: int) -> bool:
        return has_horizon(header) and self.is_clean(header, base_offset)


class _CountEverywhere(DeleteHorizons):
    def is_clean(self, header: BatchHeader, base_offset: int) -> bool:
        return True


def _nobody(*_: Any) -> tuple[frozenset[int], dict[int, int]]:
    return frozenset(), {}


class _RemovesGenerationsAtOnce(PartitionCleaner):
    def _deletable(self, listing: DirectoryListing | None = None) -> DeletableFiles:
        found, directory = super()._deletable(listing), self._log.files
        files = directory.store.list(directory.path)
        generations = [file for file in files if parse_generation_name(file.name)]
        kept = tuple(file for file in found.derived if not parse_generation_name(file.name))
        return replace(found, derived=(*kept, *generations[:-1]))


def _finds_whole_appends_only(self: ProducerState, append: Any, record_count: int) -> int | None:
    entry = dict(self.entries()).get(append.producer_id)
    if entry is None or entry.epoch != append.producer_epoch:
        return None
    offsets = (run.offset_of(append.base_sequence, record_count) for run in entry.runs)
    return next((offset for offset in offsets if offset is not None), None)


COMPACTION_RULES: dict[str, PatchVariant] = {
    "the highest generation counts, not the widest": PatchVariant(
        ((SegmentName, "precedence", property(_widest_first)),)
    ),
    "a merge leaves the segments of compactions alone": PatchVariant(
        ((SegmentName, "is_compacted", False),)
    ),
    "a compaction takes the generation after its listing": PatchVariant(
        ((compactor, "take_generation", _takes_any),)
    ),
    "only segments of the newest compaction are clean": PatchVariant(
        ((log_to_clean, "first_dirty_offset", _clean_is_what_any_wrote),)
    ),
    "between two compactions the delay passes": PatchVariant(
        ((compactor, "is_recently_compacted", _never),)
    ),
    "tombstones stay for their time": PatchVariant(((compactor, "DeleteHorizons", _PassAtOnce),)),
    "tombstones go by the storage's time": PatchVariant(
        (
            (Cleaner, "storage_clock_class", OwnTime),
            (CompactedWorld, "storage_time_us", lambda world: world.clock.time_us()),
        )
    ),
    "tombstones stay where anything is dirty before them": PatchVariant(
        ((compactor, "DeleteHorizons", _CountEverywhere),)
    ),
    "the last batch of a producer stays": PatchVariant(
        ((compactor, "last_batches_of_producers", _nobody),)
    ),
    "an append is known by the end of it that is left": PatchVariant(
        ((ProducerState, "find", _finds_whole_appends_only),)
    ),
    "a taken generation is shown until a higher one has stood": PatchVariant(
        ((Cleaner, "cleaner_class", _RemovesGenerationsAtOnce),)
    ),
}
"""The name of each safety rule, and the variant without it."""
