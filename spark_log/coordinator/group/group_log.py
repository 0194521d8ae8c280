"""A group's log: the group after each change, by conditional appends.

On storage: ``__consumer_groups/<group>/`` is the directory of the log (`StateLog`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from spark_log.config import TopicConfig
from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.records import GroupRecord, from_json
from spark_log.log import StateLog
from spark_log.storage import GROUPS_DIRECTORY, Store, file_name
from spark_log.util import Clock

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
"""The topic id of the logs of all groups; no topic has it."""

Decide = Callable[[Group], GroupRecord | None]


class GroupLog(StateLog[Group, GroupRecord]):
    """Reads and changes one group. For one thread at a time."""

    if_truncated: ClassVar[str] = (
        "; or start a new log above the committed generation: spark-log groups repair --execute"
    )

    def __init__(
        self, store: Store, group_id: str, clock: Clock, config: TopicConfig | None = None
    ) -> None:
        """Return a group's log; nothing is read yet.

        Args:
            store: the store of the root.
            group_id: any string.
            clock: the clock that gives records their timestamps.
            config: the log's topic config; None for the default.
        """
        self.on_lost_race: Callable[[int], None] = lambda races: None
        """The function that is called with a change's number of lost races before each retry."""
        super().__init__(
            store,
            group_directory(group_id),
            Group(group_id),
            clock,
            key=group_id,
            topic_id=TOPIC_ID,
            config=config,
        )

    @property
    def group(self) -> Group:
        """The group after the last replay."""
        return self.state

    def _give_way(self, races: int) -> None:
        self.on_lost_race(races)

    def _parse(self, value: bytes) -> GroupRecord:
        return from_json(value)

    def _after(self, record: GroupRecord) -> Group:
        return self.state.replay(record)


def group_directory(group_id: str) -> str:
    """Return the directory of a group's log, relative to the root."""
    return f"{GROUPS_DIRECTORY}/{file_name(group_id)}"
