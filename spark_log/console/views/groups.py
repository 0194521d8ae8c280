"""Consumer groups: members, lag in records and in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import Parameters, View
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.log import Lag, first_unread_us
from spark_log.metadata import TopicImage
from spark_log.types import GroupListing

_MAX_LAGS: Final = 1000
"""Maximum number of partitions whose logs the list of groups reads."""
_MAX_TIMES: Final = 250
"""Maximum number of positions, those with the most lag, whose first unread records the list of
groups reads."""


class GroupsParameters(Parameters):
    """The groups that are listed."""

    q: Annotated[str, Field(max_length=1000, description="Text that the id contains.")] = ""
    start: Annotated[int, Field(ge=0, description="Number of groups to skip.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of groups.")] = 50


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list.

    Attributes:
        group_id: the group's id.
        state: one of `spark_log.coordinator.GROUP_STATES`.
        members: the number of the group's members.
        topics: the topics with a committed offset, without deleted topics.
        partitions: the number of these topics' partitions with a committed offset.
        lag: the number of readable records from the committed offsets to the log ends; None if
            there are too many partitions to read, or if one cannot be read.
        deleted: the number of records that were deleted before the group read them; None if ``lag``
            is None.
        lag_ms: the age of the oldest unread record of all partitions; 0 without an unread record,
            None if unknown.
    """

    group_id: str
    state: str
    members: int
    topics: tuple[str, ...]
    partitions: int
    lag: int | None
    deleted: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """One page of the groups, sorted by id.

    Attributes:
        total: the number of groups whose ids match.
        start: the number of groups before this page.
        groups: the groups of this page.
    """

    total: int
    start: int
    groups: tuple[GroupRow, ...]


def read_groups(console: Console, parameters: GroupsParameters, budget: Budget) -> GroupsPage:
    """Read groups, their committed offsets, then the logs of the partitions of one page."""
    wanted = parameters.q.lower()
    found = [each for each in console.admin.list_groups() if wanted in each.group_id.lower()]
    page = found[parameters.start : parameters.start + parameters.limit]
    # Read committed offsets first: a log end that is read later is never before them.
    committed = OffsetsTable(console.cluster).all_committed_offsets()
    keys = {key for each in page for key in committed.get(each.group_id, ())}
    topics = _topics(console, keys)
    bounds = _bounds(console, topics, budget) if len(topics) <= _MAX_LAGS else {}
    lags = {
        each.group_id: {
            key: Lag.of(position.offset, *bounds[key]) if key in bounds else None
            for key, position in committed.get(each.group_id, {}).items()
            if key in topics
        }
        for each in page
    }
    ages = _ages_ms(console, topics, lags.values(), budget)

    def members(group: GroupListing) -> int:
        is_empty = group.group_state == "Empty"
        return 0 if is_empty else len(console.admin.group_members(group.group_id))

    rows = []
    for each, count in zip(page, console.map(members, page, budget), strict=True):
        of_group = lags[each.group_id]
        known = [lag for lag in of_group.values() if lag is not None]
        is_known = len(known) == len(of_group)
        behind = [
            None if lag is None else ages.get((key, lag.first_offset))
            for key, lag in of_group.items()
            if lag is None or lag.unread
        ]
        rows.append(
            GroupRow(
                each.group_id,
                each.group_state,
                count,
                tuple(sorted({key.topic for key in of_group})),
                len(of_group),
                sum(lag.unread for lag in known) if is_known else None,
                sum(lag.deleted for lag in known) if is_known else None,
                None if None in behind else max((age for age in behind if age), default=0),
            )
        )
    return GroupsPage(len(found), parameters.start, tuple(rows))


def _topics(console: Console, keys: Iterable[PartitionKey]) -> dict[PartitionKey, TopicImage]:
    """Return the topic of each partition that exists."""
    image = console.cluster.image()
    return {
        key: topic
        for key in keys
        if (topic := image.find(key.topic)) is not None
        and topic.topic_id == key.topic_id
        and key.partition in topic.partitions
    }


def _bounds(
    console: Console, topics: Mapping[PartitionKey, TopicImage], budget: Budget
) -> dict[PartitionKey, tuple[int, int]]:
    """Return the log start and end offsets of the partitions that can be read."""

    def bounds(key: PartitionKey) -> tuple[int, int] | None:
        try:
            view = console.observe(topics[key], key.partition)
        except UnknownTopicOrPartitionError:  # deleted since the metadata were read
            return 0, 0
        return None if view is None else (view.log_start_offset, view.log_end_offset)

    found = zip(topics, console.map(bounds, topics, budget), strict=True)
    return {key: each for key, each in found if each is not None}


def _ages_ms(
    console: Console,
    topics: Mapping[PartitionKey, TopicImage],
    groups: Iterable[Mapping[PartitionKey, Lag | None]],
    budget: Budget,
) -> dict[tuple[PartitionKey, int], int | None]:
    """Return the age of the first unread record, by partition and offset; one read for each."""
    now_us = console.cluster.clock.time_us()  # only shown
    unread = {
        (key, lag.first_offset): lag.unread
        for of_group in groups
        for key, lag in of_group.items()
        if lag is not None and lag.unread
    }
    positions = sorted(unread, key=unread.__getitem__, reverse=True)[:_MAX_TIMES]

    def age_ms(position: tuple[PartitionKey, int]) -> int | None:
        key, offset = position
        log = console.cluster.partition_log(topics[key], key.partition)
        since_us = first_unread_us(log, offset)
        return None if since_us is None else max(0, now_us - since_us) // 1000

    return dict(zip(positions, console.map(age_ms, positions, budget), strict=True))


GROUPS = View("/groups", "Groups", GroupsParameters, GroupsPage, read_groups, "groups.html")
