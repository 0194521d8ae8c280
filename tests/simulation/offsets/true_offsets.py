"""A model of the offsets table: checks every version of its log and every read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.coordinator.offsets.rows import OFFSETS_SCHEMA
from spark_log.coordinator.offsets.store import APP_PREFIX
from spark_log.storage import OFFSETS_TABLE
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.offsets.profile import RETENTION_MS
from tests.simulation.store import SimulatedDisk
from tests.simulation.violation import ViolationError

LOG = f"{OFFSETS_TABLE}/_delta_log"

Positions = Mapping[str, int]


class TrueOffsets:
    """Follows the table's log on the disk, and checks each version against the guarantees.

    Each group has one partition, because all rows of a group are ordered in the same way.

    Attributes:
        next_version: the next version of the log.
        history: each group's offsets over time; -1: none.
        vandalized: paths that vandals delete, which may break the rules.
    """

    def __init__(self, disk: SimulatedDisk, clock: Clock) -> None:
        """Return the model of an empty table on a disk, with the storage's clock."""
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
        """The current offset of each group."""
        return {group: offsets[-1] for group, offsets in self.history.items() if offsets[-1] >= 0}

    # --- changes of the storage -------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: the table may have a new version."""
        directory, _, name = path.rpartition("/")
        if directory != LOG or not name.endswith(".json"):
            return
        number = int(name[:20])
        if number < self.next_version:
            return  # void: the name was used before
        if number > self.next_version:
            raise ViolationError(
                f"version {number} was created, but {self.next_version} is the next one"
            )
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
        begun_us = now_us
        for path in added:
            written_us = self._modified_us(f"{OFFSETS_TABLE}/{path}")
            if written_us is None:
                raise ViolationError(f"version {number} names {path}, which was deleted")
            self._files.add(path)
            begun_us = min(begun_us, written_us)
            if now_us - written_us > DELETE_DELAY_MS * 500:
                self._late.add(path)  # its writer was paused: see `DeltaCleanup.delete_data_files`
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
                self._commit(number, group, offset, now_us, begun_us)

    def _check_fence(self, number: int, action: Mapping[str, Any]) -> None:
        group = action["appId"].removeprefix(APP_PREFIX)
        if action["version"] < self._fences.get(group, 0):
            raise ViolationError(
                f"version {number} is of generation {action['version']} of {group}, after "
                f"{self._fences[group]} had begun"
            )
        self._fences[group] = action["version"]

    def _commit(self, number: int, group: str, offset: int, now_us: int, begun_us: int) -> None:
        """Check a row. The age of a commit counts from its file: see `commit_times`."""
        known = self.history.setdefault(group, [-1])
        if offset < 0:
            age_ms = (now_us - self._committed_us[group]) / 1000
            if age_ms < RETENTION_MS:
                raise ViolationError(
                    f"version {number} expires {group} {age_ms:.1f} ms after its commit"
                )
        else:
            self._committed_us[group] = begun_us
        known.append(offset)

    def _check_rewrite(self, number: int) -> None:
        """Check that a rewrite keeps all offsets."""
        tables = [self._rows(path) for path in sorted(self._files)]
        rows = pa.concat_tables([OFFSETS_SCHEMA.empty_table(), *tables])
        found: dict[str, tuple[int, int, int]] = {}
        columns = [rows.column(name).to_pylist() for name in ("group", "generation", "offset")]
        stamps = pc.cast(rows.column("commit_timestamp"), pa.int64()).to_pylist()
        for group, generation, offset, stamp in zip(*columns, stamps, strict=True):
            found[group] = max(found.get(group, (-1, -1, -1)), (generation, stamp, offset))
        positions = {group: offset for group, (_, _, offset) in found.items() if offset >= 0}
        if positions != self.positions:
            raise ViolationError(f"version {number} changes {self.positions} to {positions}")

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file, which no process may need any more."""
        directory, _, name = path.rpartition("/")
        now_us = self._clock.time_us()
        if path in self.vandalized:
            return
        if directory == OFFSETS_TABLE and name in self._files:
            raise ViolationError(f"{name} was deleted, which is in the table")
        since_us = self._removed_us.get(name) if directory == OFFSETS_TABLE else None
        if directory == LOG and name.endswith(".json"):
            since_us = self._appeared_us.pop(path, None)  # None: void
        if since_us is not None and now_us - since_us < DELETE_DELAY_MS * 1000:
            raise ViolationError(
                f"{name} was deleted {(now_us - since_us) / 1000:.1f} ms after others needed it"
            )

    # --- results of processes ---------------------------------------------------------------------

    def check_acknowledged(self, group: str, offset: int) -> None:
        """Check that an acknowledged commit took effect."""
        if offset not in self.history.get(group, ()):
            raise ViolationError(f"{group} at {offset} was acknowledged, and is in no version")

    def moment(self) -> dict[str, int]:
        """Return the current moment, as an argument of `check_read`."""
        return {group: len(offsets) - 1 for group, offsets in self.history.items()}

    def check_read(self, group: str, offset: int, began: Mapping[str, int]) -> None:
        """Check the offset of a group that was read since a moment; -1: none."""
        possible = self.history.get(group, [-1])[began.get(group, 0) :]
        if offset not in possible:
            raise ViolationError(f"{group} was read at {offset}, but it was at {possible}")

    # --- helpers ---------------------------------------------------------------------------------

    def _modified_us(self, path: str) -> int | None:
        found = [each for each in self._disk.listing(OFFSETS_TABLE) if each.path == path]
        return found[0].modified_us if found else None

    def _rows(self, path: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self._disk.open_buffer(f"{OFFSETS_TABLE}/{path}")))
