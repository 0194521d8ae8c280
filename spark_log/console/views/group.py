"""One consumer group: lag, members, assignments, and the history of its committed offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import GroupId, Parameters, View
from spark_log.coordinator import OffsetsTable

MAX_SERIES: Final = 12
MAX_POINTS: Final = 500


class GroupParameters(Parameters):
    """The group that is shown."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group.

    Attributes:
        member_id: the member's id.
        group_instance_id: ``group.instance.id`` of a static member; None for a dynamic one.
        client_id: ``client.id`` of the member's consumer.
        client_host: the host name of the member's machine; empty if unknown.
        assignment: the partitions that the member reads.
        revoking: the partitions that the member still has to release.
        pending: the partitions that the member gets after others have released them.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[str, ...]
    revoking: tuple[str, ...]
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionLagRow:
    """Committed offset and lag of a group in one partition.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        current_offset: the committed offset; None without one.
        log_end_offset: the next offset to be written.
        lag: the number of readable records from the committed offset to the log end offset; None
            without a committed offset.
        deleted: the number of records that were deleted before the group read them; None without a
            committed offset.
        lag_ms: the age of the first unread record; 0 without an unread record, None if unknown.
        commit_timestamp_us: the time of the commit; None without a commit.
        metadata: the text that was committed with the offset.
        member_id: the id of the member that reads the partition; empty without one.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int
    lag: int | None
    deleted: int | None
    lag_ms: int | None
    commit_timestamp_us: int | None
    metadata: str
    member_id: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A group.

    Attributes:
        group_id: the group's id.
        state: one of `spark_log.coordinator.GROUP_STATES`.
        protocol: the name of the assignor; empty without members.
        generation: the generation of the newest change.
        lag: the sum of the partitions' lags.
        deleted: the number of records, in all partitions, that were deleted before the group read
            them.
        lag_ms: the largest `lag_ms` of a partition; None if all are unknown.
        members: the members, in the order in which they joined.
        partitions: the partitions, sorted by topic and number.
    """

    group_id: str
    state: str
    protocol: str
    generation: int
    lag: int
    deleted: int
    lag_ms: int | None
    members: tuple[MemberRow, ...]
    partitions: tuple[PartitionLagRow, ...]


def read_group(console: Console, parameters: GroupParameters, budget: Budget) -> GroupPage:
    """Read one group, and the log end of each of its partitions.

    Raises:
        GroupIdNotFoundError: the group has neither members nor committed offsets.
    """
    (description,) = console.admin.describe_groups([parameters.group]).values()
    budget.check()
    lags = console.admin.group_lag(parameters.group)
    return GroupPage(
        description.group_id,
        description.group_state,
        description.protocol,
        description.generation,
        sum(each.lag or 0 for each in lags),
        sum(each.deleted or 0 for each in lags),
        max((each.lag_ms for each in lags if each.lag_ms is not None), default=None),
        tuple(
            MemberRow(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                tuple(map(str, each.assignment)),
                tuple(map(str, each.revoking)),
                tuple(map(str, each.pending)),
            )
            for each in description.members
        ),
        tuple(
            PartitionLagRow(
                each.partition.topic,
                each.partition.partition,
                each.current_offset,
                each.log_end_offset,
                each.lag,
                each.deleted,
                each.lag_ms,
                each.commit_timestamp_us,
                each.metadata,
                each.member.member_id if each.member else "",
            )
            for each in lags
        ),
    )


@dataclass(frozen=True, slots=True)
class Series:
    """Committed offsets of one partition over time.

    Attributes:
        name: the topic and partition.
        offsets: the offset at each of the times; None before the first commit, and after the offset
            was deleted.
    """

    name: str
    offsets: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class GroupHistoryPage:
    """Committed offsets of a group over time, for as long as the offsets table keeps them.

    Attributes:
        group_id: the group's id.
        times_us: at most `MAX_POINTS` times of commits, in microseconds since the epoch.
        series: the partitions with the most commits, at most `MAX_SERIES`, sorted by partition.
        partitions: the number of partitions that have a history.
    """

    group_id: str
    times_us: tuple[int, ...]
    series: tuple[Series, ...]
    partitions: int


def read_history(console: Console, parameters: GroupParameters, budget: Budget) -> GroupHistoryPage:
    """Read the rows of a group from the offsets table."""
    rows = OffsetsTable(console.cluster).history(parameters.group)
    budget.check()
    stamps = rows.column("commit_timestamp").cast(pa.int64())
    rows = rows.append_column("us", stamps).take(pc.sort_indices(stamps))
    topics, numbers = rows.column("topic").to_pylist(), rows.column("partition").to_pylist()
    keys = list(zip(topics, numbers, strict=True))
    counts = Counter(keys)
    shown = [key for key, _ in counts.most_common(MAX_SERIES)]
    every_us = np.unique(rows.column("us").to_numpy())
    if len(every_us) > MAX_POINTS:
        picked = np.linspace(0, len(every_us) - 1, MAX_POINTS).astype(int)
        every_us = every_us[np.unique(picked)]
    offsets = rows.column("offset").to_pylist()
    row_us = rows.column("us").to_numpy()
    # For each partition, find the last commit at or before each time.
    upto = np.searchsorted(row_us, every_us, side="right")
    latest: dict[tuple[str, int], int] = {}
    columns: dict[tuple[str, int], list[int | None]] = {key: [] for key in shown}
    begin = 0
    for end in upto.tolist():
        budget.check()
        latest.update(zip(keys[begin:end], offsets[begin:end], strict=True))
        begin = end
        for key, column in columns.items():
            found = latest.get(key, -1)
            column.append(None if found < 0 else found)
    series = (Series(f"{key[0]}-{key[1]}", tuple(columns[key])) for key in sorted(shown))
    return GroupHistoryPage(parameters.group, tuple(every_us.tolist()), tuple(series), len(counts))


GROUP = View("/group", "Group", GroupParameters, GroupPage, read_group, "group.html")
HISTORY = View(
    "/group/history",
    "History of a group's offsets",
    GroupParameters,
    GroupHistoryPage,
    read_history,
    "history.html",
)
