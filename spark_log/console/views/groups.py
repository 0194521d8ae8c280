"""Consumer groups: members, lag in records and in time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from spark_log.admin import GroupListing
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import Parameters, View
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.log import first_unread_us

_MAX_LAGS: Final = 1000
"""Most partitions whose log ends the list of groups reads."""
_MAX_TIMES: Final = 250
"""Most positions whose first unread records the list of groups reads: those with the most lag."""


class GroupsParameters(Parameters):
    """Which groups."""

    q: Annotated[str, Field(max_length=1000, description="A part of the id.")] = ""
    start: Annotated[int, Field(ge=0, description="Number of groups to skip.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Most groups.")] = 50


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list.

    Attributes:
        group_id: its id.
        state: ``Empty``, ``Stable`` or ``Reconciling``.
        members: number of its members.
        topics: topics with a committed offset.
        partitions: number of partitions with a committed offset.
        lag: records from the committed offsets to the log ends; None if there are too many
            partitions to read, or if one cannot be read.
        lag_ms: age of the oldest record that is first unread in its partition; 0 if all records are
            read, None if it is not known.
    """

    group_id: str
    state: str
    members: int
    topics: tuple[str, ...]
    partitions: int
    lag: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups by id.

    Attributes:
        total: number of groups whose ids match.
        start: number of groups before these.
        groups: some of them.
    """

    total: int
    start: int
    groups: tuple[GroupRow, ...]


def read_groups(console: Console, parameters: GroupsParameters, budget: Budget) -> Groups:
    """Read groups, their committed offsets, then the ends of the partitions of one page."""
    wanted = parameters.q.lower()
    found = [each for each in console.admin.list_groups() if wanted in each.group_id.lower()]
    page = found[parameters.start : parameters.start + parameters.limit]
    # Committed offsets first: a log end that is read later is never before them.
    committed = OffsetsTable(console.cluster).all_positions()
    positions = {
        each.group_id: {
            key: position.offset for key, position in committed.get(each.group_id, {}).items()
        }
        for each in page
    }
    keys = {key for offsets in positions.values() for key in offsets}
    ends = _ends(console, keys, budget) if len(keys) <= _MAX_LAGS else {}
    ages = _ages_ms(console, positions.values(), ends, budget)

    def members(group: GroupListing) -> int:
        is_empty = group.group_state == "Empty"
        return 0 if is_empty else len(console.admin.group_members(group.group_id))

    rows = []
    for each, count in zip(page, console.map(members, page, budget), strict=True):
        offsets = positions[each.group_id]
        lags = [_lag(offset, ends.get(key)) for key, offset in offsets.items()]
        behind = [
            ages.get(position)
            for position, lag in zip(offsets.items(), lags, strict=True)
            if lag != 0
        ]
        rows.append(
            GroupRow(
                each.group_id,
                each.group_state,
                count,
                tuple(sorted({key.topic for key in offsets})),
                len(offsets),
                None if None in lags else sum(lag for lag in lags if lag),
                None if None in behind else max((age for age in behind if age), default=0),
            )
        )
    return Groups(len(found), parameters.start, tuple(rows))


def _lag(offset: int, end: int | None) -> int | None:
    return None if end is None else max(0, end - offset)


def _ends(
    console: Console, keys: Collection[PartitionKey], budget: Budget
) -> dict[PartitionKey, int]:
    """Return the log ends of partitions that can be read; 0 where the topic was deleted."""
    image = console.cluster.image()

    def end(key: PartitionKey) -> int | None:
        topic = image.find(key.topic)
        if topic is None or topic.topic_id != key.topic_id or key.partition not in topic.partitions:
            return 0
        try:
            view = console.observe(topic, key.partition)
        except UnknownTopicOrPartitionError:  # deleted since the metadata were read
            return 0
        return None if view is None else view.log_end_offset

    found = zip(keys, console.map(end, keys, budget), strict=True)
    return {key: offset for key, offset in found if offset is not None}


def _ages_ms(
    console: Console,
    groups: Iterable[Mapping[PartitionKey, int]],
    ends: Mapping[PartitionKey, int],
    budget: Budget,
) -> dict[tuple[PartitionKey, int], int | None]:
    """Return the age of the first unread record of positions that are behind; one read for each."""
    image, now_us = console.cluster.image(), console.cluster.clock.time_us()  # only shown
    lags = {
        (key, offset): ends[key] - offset
        for offsets in groups
        for key, offset in offsets.items()
        if offset < ends.get(key, 0)
    }
    positions = sorted(lags, key=lags.__getitem__, reverse=True)[:_MAX_TIMES]

    def age_ms(position: tuple[PartitionKey, int]) -> int | None:
        key, offset = position
        topic = image.find(key.topic)
        if topic is None or topic.topic_id != key.topic_id:
            return None
        since_us = first_unread_us(console.cluster.partition_log(topic, key.partition), offset)
        return None if since_us is None else max(0, now_us - since_us) // 1000

    return dict(zip(positions, console.map(age_ms, positions, budget), strict=True))


GROUPS = View("/groups", "Groups", GroupsParameters, Groups, read_groups, "groups.html")
