"""The simulations of a log whose topic is a table: merges and compactions write Parquet segments.

Everything else is as in the simulations that they extend, so a seed has the same conditions.
"""

from __future__ import annotations

from dataclasses import replace

from spark_log.log.directory.log_view import LogView
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from spark_log.record.batch_header import BatchHeader
from tests.simulation.compaction.simulation import CompactionSimulation
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.maintenance import Merger
from tests.simulation.log.rules import SOUND, Variant
from tests.simulation.log.simulation import LogSimulation
from tests.simulation.patches import SHIPPED, PatchVariant

_TABLE = {"table_format": "delta", "table_commit_interval_ms": DELETE_DELAY_MS}


class ParquetLogSimulation(LogSimulation):
    """A partition's log, in which some merges write Parquet files, and some Arrow files."""

    def __init__(self, seed: int, variant: Variant = SOUND) -> None:
        """Return a simulation of the shipped log, or of one without a safety rule."""
        super().__init__(seed, replace(variant, merger=_parquet(variant.merger)))
        self.world.config = self.world.config.model_copy(update=_TABLE)


class ParquetCompactionSimulation(CompactionSimulation):
    """A compacted log, whose compactions write Parquet files."""

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped log, or of one without a safety rule."""
        super().__init__(seed, variant)
        self.world.config = self.world.config.model_copy(update=_TABLE)


def _parquet(merger: type[Merger]) -> type[Merger]:
    """Return a merger of which half of the merges write Parquet files."""

    class ParquetMerger(merger):  # type: ignore[misc,valid-type] # a class of the variant
        def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
            if self._world.scheduler.random.random() < 0.5:
                name: SegmentName = super()._merge(view, first, last)
                return name
            return merge(self._world.directory(), view, first, last, to_parquet=_never_aborted).name

    return ParquetMerger


def _never_aborted(header: BatchHeader, base_offset: int) -> bool:
    return False  # the simulation has no transactions
