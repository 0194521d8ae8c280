"""Reads all generations and all committed offsets of a group from storage."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.records import from_json
from spark_log.coordinator.offsets.store import APP_PREFIX
from spark_log.errors import NotFoundError
from spark_log.log.files.file_names import SegmentName
from spark_log.storage import OFFSETS_TABLE
from spark_log.types import TopicPartition


class GroupHistory:
    """Every generation of a group.

    The group's log is trimmed, but it keeps each record for ``file.delete.delay.ms`` after the next
    one: call `look` more often than that.
    """

    def __init__(self, store, group_id):
        self._store = store
        self._group_id = group_id
        self._directory = GroupLog.directory_of(group_id)
        self._records = {}

    def look(self):
        """Read and return the new records, in order."""
        new = {}
        for file in self._store.list(self._directory):
            name = SegmentName.parse(file.name)
            if name is None or name.generation or name.base_offset in self._records:
                continue
            try:
                data = self._store.open_buffer(f"{self._directory}/{file.name}")
            except NotFoundError:
                continue
            values = ipc.open_file(data).read_all().column("value").to_pylist()
            if not values:  # a name that was closed
                continue
            new[name.base_offset] = [from_json(value) for value in values]
        self._records.update(new)
        return [record for offset in sorted(new) for record in new[offset]]

    def groups(self) -> Mapping[int, Group]:
        """Return the group of each generation, and check that none is missing."""
        groups, group, due = {}, Group(self._group_id), 0
        for offset in sorted(self._records):
            assert offset == due, f"the group's records from {due} on were not seen"
            for record in self._records[offset]:
                group = groups[record.generation] = group.replay(record)
            due += len(self._records[offset])
        return groups

    @property
    def latest(self) -> Group:
        """The group after the last record that was read."""
        if not self._records:
            return Group(self._group_id)
        return Group(self._group_id).replay(self._records[max(self._records)][-1])


@dataclass(frozen=True)
class Row:
    """A row of the offsets table.

    Attributes:
        version: the table's version that added it.
        fence_before: the group's fence in the version before.
        fence: the group's fence in this version, which may hold several commits of one process.
        stamp: the time of the commit.
        name: the commit's id, which is its metadata.
    """

    version: int
    fence_before: int
    fence: int
    generation: int
    stamp: object
    member_id: str
    partition: TopicPartition
    offset: int
    name: str


def committed_rows(store, group_id):
    """Return a group's rows in the order in which they were committed."""
    return committed_rows_of(store, (group_id,))[group_id]


def committed_rows_of(store, group_ids):
    """Return the rows of several groups, each in the order in which they were committed."""
    found: dict[str, list[Row]] = {group_id: [] for group_id in group_ids}
    fences = dict.fromkeys(group_ids, -1)
    log = f"{OFFSETS_TABLE}/_delta_log"
    names = [file.name for file in store.list(log)]
    for name in sorted(each for each in names if each.endswith(".json") and each[0].isdigit()):
        lines = store.open_buffer(f"{log}/{name}").to_pybytes().splitlines()
        actions = [json.loads(line) for line in lines]
        added = [each["add"] for each in actions if "add" in each]
        raised = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
        before, fences = (
            fences,
            {each: raised.get(f"{APP_PREFIX}{each}", fence) for each, fence in fences.items()},
        )
        for add in added:
            if not add["dataChange"]:
                continue
            data = store.open_buffer(f"{OFFSETS_TABLE}/{add['path']}")
            for row in pq.read_table(pa.BufferReader(data)).to_pylist():
                if (group_id := row["group"]) in found:
                    found[group_id].append(
                        Row(
                            int(name.removesuffix(".json")),
                            before[group_id],
                            fences[group_id],
                            row["generation"],
                            row["commit_timestamp"],
                            row["member_id"],
                            TopicPartition(row["topic"], row["partition"]),
                            row["offset"],
                            row["metadata"],
                        )
                    )
    for rows in found.values():
        rows.sort(key=lambda row: (row.version, row.generation, row.stamp))
    return found
