"""The truth about a simulated offsets table: every version that came to be, and its effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.clock import Clock
from spark_log.coordinator.offsets.rows import OFFSETS_SCHEMA
from spark_log.coordinator.offsets.store import APP_PREFIX, DIRECTORY
from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS
from spark_log.testing.simulation.log.true_log import ViolationError
from spark_log.testing.simulation.offsets.profile import RETENTION_MS
from spark_log.testing.simulation.store import SimulatedDisk

LOG = f"{DIRECTORY}/_delta_log"

Positions = Mapping[str, int]


class TrueOffsets:
    """Sees the table's log grow on the disk itself, and holds each version against the rules.

    One partition for each group is enough: rows of a group are in one order whatever they are of.

    Attributes:
        next_version: of the log.
        history: each group's positions, one after the other; -1 for none.
        vandalized: paths that programs delete that keep to no rule.
    """

    def __init__(self, disk: SimulatedDisk, clock: Clock) -> None:
        """Args: disk: what processes share; clock: the storage's."""
        self._disk = disk
        self._clock = clock
        self.next_version = 0
        self.history: dict[str, list[int]] = {}
        self.vandalized: set[str] = set()
        self._committed_us: dict[str, int] = {}
        self._fences: dict[str, int] = {}
        self._files: set[str] = set()
        self._late: set[str] = set()
        self._removed_us: dict[str, int] = {}
        self._appeared_us: dict[str, int] = {}
        self._versions: set[int] = set()

    @property
    def positions(self) -> dict[str, int]:
        """Where each group is."""
        return {group: offsets[-1] for group, offsets in self.history.items() if offsets[-1] >= 0}

    # --- what takes effect -----------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """A put took effect."""
        directory, _, name = path.rpartition("/")
        if directory != LOG or not name.endswith(".json"):
            return
        number = int(name[:20])
        if number < self.next_version:
            return  # void: the name had been used, and freed
        if number > self.next_version:
            raise ViolationError(f"version {number} came where {self.next_version} is the next")
        self.next_version += 1
        body = self._disk.open_buffer(path).to_pybytes()
        actions = [pair for line in body.splitlines() for pair in json.loads(line).items()]
        now_us = self._disk.head(path).modified_us
        self._appeared_us[path] = now_us
        self._apply(number, actions, now_us)

    def _apply(self, number: int, actions: list[tuple[str, Any]], now_us: int) -> None:
        added = [action["path"] for kind, action in actions if kind == "add"]
        removed = [action["path"] for kind, action in actions if kind == "remove"]
        for path in removed:
            if path not in self._files:
                raise ViolationError(f"version {number} removes {path}, which is not in the table")
            self._files.discard(path)
            if path not in self._late:
                self._removed_us[path] = now_us
        for path in added:
            written_us = self._modified_us(f"{DIRECTORY}/{path}")
            if written_us is None:
                raise ViolationError(f"version {number} names {path}, which is gone")
            self._files.add(path)
            if now_us - written_us > DELETE_DELAY_MS * 500:
                self._late.add(path)  # its writer stood still: see `DeltaCleanup.free_data_files`
        for kind, action in actions:
            if kind == "txn":
                self._check_fence(number, action)
        if removed:
            self._check_rewrite(number)
            return
        for path in added:
            rows = self._rows(path)
            for group, offset in zip(
                rows["group"].to_pylist(), rows["offset"].to_pylist(), strict=True
            ):
                self._commit(number, group, offset, now_us)

    def _check_fence(self, number: int, action: Mapping[str, Any]) -> None:
        group = action["appId"].removeprefix(APP_PREFIX)
        if action["version"] < self._fences.get(group, 0):
            raise ViolationError(
                f"version {number} is of generation {action['version']} of {group}, after "
                f"{self._fences[group]} had begun"
            )
        self._fences[group] = action["version"]

    def _commit(self, number: int, group: str, offset: int, now_us: int) -> None:
        known = self.history.setdefault(group, [-1])
        if offset < 0:
            age_ms = (now_us - self._committed_us[group]) / 1000
            if age_ms < RETENTION_MS:
                raise ViolationError(
                    f"version {number} forgets {group} {age_ms:.1f} ms after its commit"
                )
        else:
            self._committed_us[group] = now_us
        known.append(offset)

    def _check_rewrite(self, number: int) -> None:
        """A rewrite keeps where everybody is."""
        tables = [self._rows(path) for path in sorted(self._files)]
        rows = pa.concat_tables([OFFSETS_SCHEMA.empty_table(), *tables])
        found: dict[str, tuple[int, int, int]] = {}
        columns = [rows.column(name).to_pylist() for name in ("group", "generation", "offset")]
        stamps = pc.cast(rows.column("commit_timestamp"), pa.int64()).to_pylist()
        for group, generation, offset, stamp in zip(*columns, stamps, strict=True):
            found[group] = max(found.get(group, (-1, -1, -1)), (generation, stamp, offset))
        positions = {group: offset for group, (_, _, offset) in found.items() if offset >= 0}
        if positions != self.positions:
            raise ViolationError(f"version {number} makes {positions} of {self.positions}")

    def on_file_deleted(self, path: str) -> None:
        """A delete took effect."""
        directory, _, name = path.rpartition("/")
        now_us = self._clock.time_us()
        if path in self.vandalized:
            return
        if directory == DIRECTORY and name in self._files:
            raise ViolationError(f"{name} was deleted, which is in the table")
        since_us = self._removed_us.get(name) if directory == DIRECTORY else None
        if directory == LOG and name.endswith(".json"):
            since_us = self._appeared_us.pop(path, None)  # None: void
        if since_us is not None and now_us - since_us < DELETE_DELAY_MS * 1000:
            raise ViolationError(
                f"{name} was deleted {(now_us - since_us) / 1000:.1f} ms after others needed it"
            )

    # --- what somebody was told ------------------------------------------------------------------

    def check_acknowledged(self, group: str, offset: int) -> None:
        """Somebody was told that a commit took effect."""
        if offset not in self.history.get(group, ()):
            raise ViolationError(f"{group} at {offset} was acknowledged, and is nowhere")

    def moment(self) -> dict[str, int]:
        """Return what `check_read` needs to know of the moment when a look begins."""
        return {group: len(offsets) - 1 for group, offsets in self.history.items()}

    def check_read(self, group: str, offset: int, began: Mapping[str, int]) -> None:
        """Somebody looked where a group is; -1: nowhere."""
        possible = self.history.get(group, [-1])[began.get(group, 0) :]
        if offset not in possible:
            raise ViolationError(f"{group} was read at {offset}, but it was at {possible}")

    # --- helpers ---------------------------------------------------------------------------------

    def _modified_us(self, path: str) -> int | None:
        found = [each for each in self._disk.listing(DIRECTORY) if each.path == path]
        return found[0].modified_us if found else None

    def _rows(self, path: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self._disk.open_buffer(f"{DIRECTORY}/{path}")))
