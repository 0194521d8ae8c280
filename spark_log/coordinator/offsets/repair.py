"""Repairs a damaged or lost offsets table, and reports exactly what is lost.

The repair saves each group's fence, and the rows of all readable data files that a readable version
or checkpoint holds. A file that no readable version holds may belong to a refused commit; its rows
are saved only on request. The repaired table is one new version after all others, with its own
checkpoint. Nothing is deleted or renamed; after a crash the table is damaged as before, or
repaired. All consumers have to be stopped during the repair.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_log.cluster import Cluster
from spark_log.coordinator.group import GroupCoordinator, GroupLog
from spark_log.coordinator.offsets.commit_times import CommitTimes, commit_times, to_footer
from spark_log.coordinator.offsets.creation import definition, mark
from spark_log.coordinator.offsets.rows import EMPTY, OFFSETS_SCHEMA, sort_rows
from spark_log.coordinator.offsets.store import APP_PREFIX, OffsetsStore
from spark_log.delta import DataFile, SetTransaction
from spark_log.errors import NotFoundError, StorageError
from spark_log.log.files import ExistenceMarker
from spark_log.storage import OFFSETS_TABLE
from spark_log.util import IN_PROCESS, parse_json

_LOG = f"{OFFSETS_TABLE}/_delta_log"
_NAME = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")


@dataclass(frozen=True, slots=True)
class LostFile:
    """A data file whose rows are lost, with what the log says about them."""

    path: str
    reason: str
    num_rows: int
    min_group: str | None
    max_group: str | None


@dataclass(slots=True)
class RepairReport:
    """The damage of a table, and what can be saved.

    Attributes:
        problem: the reason why the table cannot be used; empty if it can.
        lost_versions: the versions that cannot be read; their rows are lost unless a later
            checkpoint was read.
        lost_files: the data files of the table that cannot be read.
        unnamed_files: the readable data files that no readable version holds.
        groups: the ids of the groups that have rows after the repair.
        rows: the number of rows that are saved.
        lagging_groups: the groups whose log ends before their fence: a part of the log is lost.
        is_repaired: whether the repair was done.
    """

    problem: str = ""
    lost_versions: list[int] = field(default_factory=list)
    lost_files: list[LostFile] = field(default_factory=list)
    unnamed_files: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    rows: int = 0
    lagging_groups: dict[str, int] = field(default_factory=dict)
    is_repaired: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.problem and not self.lost_files and not self.lagging_groups


class OffsetsRepair:
    """Finds and repairs damage of the offsets table of one root."""

    def __init__(self, cluster: Cluster) -> None:
        """Return the repair of a root's table; nothing is read yet.

        Args:
            cluster: the opened root.
        """
        self._cluster = cluster
        self._table = OffsetsStore(cluster.store, cluster.clock)
        self._times: CommitTimes = {}

    def run(self, *, execute: bool = False, with_unnamed: bool = False) -> RepairReport:
        """Find damage, and repair it.

        Args:
            execute: whether to repair; if false, only report.
            with_unnamed: whether to save also the rows of files that no readable version holds,
                although a refused commit may have left them.

        Raises:
            StorageError: the storage fails; run it again.
        """
        report = RepairReport()
        fences: dict[str, int] = {}
        try:
            self._table.refresh()
            files = list(self._table.state.files.values())
            fences = {group: each.version for group, each in self._table.transactions().items()}
        except StorageError as error:
            report.problem = str(error)
            files = []
        saved = self._salvage(report, files, with_unnamed) if report.problem else None
        if saved is None:
            self._check_files(report, files)
            if report.lost_files:
                report.problem = f"{len(report.lost_files)} data files cannot be read"
                saved = self._salvage(report, files, with_unnamed)
        if saved is not None:
            rows, salvaged, highest = saved
            for group, fence in salvaged.items():
                fences[group] = max(fence, fences.get(group, 0))
            for group, generation in self._generations(rows).items():
                fences[group] = max(generation, fences.get(group, 0))
        generations = {
            group: GroupLog.view(self._cluster.store, group, self._cluster.clock).state.generation
            for group in GroupLog.list_names(self._cluster.store, self._cluster.clock)
        }
        for group, fence in fences.items():
            if fence > 0 and self._last_generation(group, generations.get(group)) < fence:
                report.lagging_groups[group] = fence
        for group, generation in generations.items():
            fences[group] = max(generation, fences.get(group, 0))
        if execute:
            if saved is not None:
                self._write(rows, fences, highest)
            for group, fence in report.lagging_groups.items():
                # If its whole log is lost, a new one starts above the committed generations.
                self._table.store.delete(ExistenceMarker(GroupLog.directory_of(group)).path)
                self._table.store.make_directory(GroupLog.directory_of(group))
                GroupCoordinator(self._cluster, group).raise_generation(fence)
            report.is_repaired = saved is not None or bool(report.lagging_groups)
        return report

    # --- reading ---------------------------------------------------------------------------

    def _last_generation(self, group: str, generation: int | None) -> float:
        """Return the generation of a group in its log; infinity if it never had a log."""
        if generation is not None:
            return generation
        return (
            0
            if ExistenceMarker(GroupLog.directory_of(group)).exists(self._table.store)
            else math.inf
        )

    def _salvage(
        self, report: RepairReport, known: list[DataFile], with_unnamed: bool
    ) -> tuple[pa.Table, dict[str, int], int]:
        """Return the readable rows, the fences, and the highest version."""
        listed = [found for f in self._table.store.list(_LOG) if (found := _NAME.fullmatch(f.name))]
        numbers = sorted(int(found[1]) for found in listed if found[2] == "json")
        points = sorted(int(found[1]) for found in listed if found[2] != "json")
        added = {file.path: file for file in known}
        removed: set[str] = set()
        fences: dict[str, int] = {}
        read: set[int] = set()
        covered = -1
        for number in points:
            try:
                self._collect(self._checkpoint(number), added, removed, fences)
                covered = number
            except (StorageError, pa.ArrowException, OSError, ValueError, KeyError, TypeError):
                report.lost_files.append(
                    LostFile(
                        f"_delta_log/{number:020}.checkpoint.parquet", "unreadable", 0, None, None
                    )
                )
        for number in numbers:
            try:
                self._collect(self._version(number), added, removed, fences)
                read.add(number)
            except (StorageError, ValueError, KeyError, TypeError, AttributeError):
                pass
        highest = max([*numbers, *points], default=-1)
        report.lost_versions = [n for n in range(covered + 1, highest + 1) if n not in read]
        present = {
            file.name
            for file in self._table.store.list(OFFSETS_TABLE)
            if file.name.endswith(".parquet")
        }
        unnamed = sorted(present - added.keys())
        parts = [EMPTY]
        lost = {file.path for file in report.lost_files}
        readable: list[DataFile] = []
        for file in added.values():
            # The rows of a removed file are in compacted files, unless those are lost.
            if file.path in removed and file.path not in present:
                continue
            try:
                parts += self._table.files.parts(file)
                readable.append(file)
            except StorageError as error:
                if file.path not in removed and file.path not in lost:
                    report.lost_files.append(_lost(file, error))
        unnamed_parts = self._unnamed_parts(report, unnamed)
        parts += unnamed_parts if with_unnamed else []
        store, files = self._table.store, self._table.files
        self._times = commit_times(store, OFFSETS_TABLE, files, readable)
        rows = pa.concat_tables(parts)
        rows = rows.group_by(OFFSETS_SCHEMA.names, use_threads=False).aggregate([])
        rows = sort_rows(rows).select(OFFSETS_SCHEMA.names).cast(OFFSETS_SCHEMA)
        report.rows = rows.num_rows
        report.groups = sorted(pc.unique(rows.column("group")).to_pylist())
        return rows, fences, highest

    def _unnamed_parts(self, report: RepairReport, paths: list[str]) -> list[pa.Table]:
        """Return the rows of the readable files among those that no version holds."""
        found: list[pa.Table] = []
        for path in paths:
            size_bytes = self._table.store.head(f"{OFFSETS_TABLE}/{path}").size_bytes
            file = DataFile(path, size_bytes, -1, None, None)
            try:
                found += list(self._table.files.parts(file))
            except StorageError as error:
                IN_PROCESS.add("repair", OFFSETS_TABLE, error)
            else:
                report.unnamed_files.append(path)
        return found

    def _check_files(self, report: RepairReport, files: list[DataFile]) -> None:
        for file in files:
            try:
                for _ in self._table.files.parts(file):
                    pass
            except StorageError as error:
                report.lost_files.append(_lost(file, error))

    def _version(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        body = self._table.store.open_buffer(f"{_LOG}/{number:020}.json").to_pybytes()
        lines = [parse_json(line) for line in body.splitlines()]
        if not lines:
            raise ValueError("an empty version")
        return iter([pair for line in lines for pair in line.items()])

    def _checkpoint(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        data = self._table.store.open_buffer(f"{_LOG}/{number:020}.checkpoint.parquet")
        table = pq.read_table(pa.BufferReader(data))
        return iter(
            [
                (name, action)
                for name in ("add", "remove", "txn")
                if name in table.column_names
                for action in table.column(name).drop_null().to_pylist()
            ]
        )

    def _collect(
        self,
        actions: Iterator[tuple[str, dict[str, Any]]],
        added: dict[str, DataFile],
        removed: set[str],
        fences: dict[str, int],
    ) -> None:
        for kind, action in actions:
            if kind == "add":
                added.setdefault(action["path"], DataFile.from_action(action))
            elif kind == "remove":
                removed.add(action["path"])
            elif kind == "txn" and action["appId"].startswith(APP_PREFIX):
                group = action["appId"].removeprefix(APP_PREFIX)
                fences[group] = max(action["version"], fences.get(group, 0))

    def _generations(self, rows: pa.Table) -> dict[str, int]:
        most = rows.group_by("group").aggregate([("generation", "max")])
        return dict(zip(most["group"].to_pylist(), most["generation_max"].to_pylist(), strict=True))

    # --- writing ----------------------------------------------------------------------

    def _write(self, rows: pa.Table, fences: dict[str, int], highest: int) -> None:
        # wall clock: dates of Delta's history, for users
        store, time_us = self._table.store, self._cluster.clock.time_us()
        number = highest + 1
        last_us = rows.group_by("group").aggregate([("commit_timestamp", "max")])
        stamps = last_us["commit_timestamp_max"].cast(pa.int64()).to_pylist()
        last = dict(zip(last_us["group"].to_pylist(), stamps, strict=True))
        actions = definition(time_us // 1000)
        if rows.num_rows:
            file = self._table.files.write([rows], footer=lambda: to_footer(self._times))
            actions.append(file.to_add(time_us // 1000))
        actions += [
            SetTransaction(
                f"{APP_PREFIX}{group}", fence, -(-last.get(group, 0) // 1000)
            ).to_action()
            for group, fence in sorted(fences.items())
        ]
        info = {"timestamp": time_us // 1000, "operation": "REPAIR", "engineInfo": "spark-log"}
        lines: list[dict[str, object]] = [{"commitInfo": info}, *actions]
        body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        checkpoint = pa.BufferOutputStream()
        pq.write_table(_checkpoint_table(actions), checkpoint)
        store.make_directory(_LOG)
        # Write the checkpoint first: readers use it only once the version exists too.
        store.put(f"{_LOG}/{number:020}.checkpoint.parquet", checkpoint.getvalue())
        store.put_if_absent(f"{_LOG}/{number:020}.json", body)
        pointer = json.dumps({"version": number, "size": len(actions)})
        store.put(f"{_LOG}/_last_checkpoint", pointer.encode())
        mark(store)


def _lost(file: DataFile, error: StorageError) -> LostFile:
    reason = "missing" if isinstance(error.__cause__, NotFoundError) else "unreadable"
    return LostFile(file.path, reason, file.num_rows, file.min_group, file.max_group)


_CHECKPOINT_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": pa.map_(pa.string(), pa.string()),
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct(
                    {"provider": pa.string(), "options": pa.map_(pa.string(), pa.string())}
                ),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": pa.map_(pa.string(), pa.string()),
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def _checkpoint_table(actions: list[dict[str, object]]) -> pa.Table:
    """Return the checkpoint of a table with only these actions."""
    rows = []
    for line in actions:
        ((kind, action),) = line.items()
        assert isinstance(action, dict)
        values = {
            name: list(value.items()) if isinstance(value, dict) and name != "format" else value
            for name, value in action.items()
        }
        if kind == "metaData":
            values["format"] = {"provider": "parquet", "options": []}
        rows.append({kind: values})
    return pa.Table.from_pylist(rows, schema=_CHECKPOINT_SCHEMA)
