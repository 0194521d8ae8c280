"""A group's log: the group after each change, by conditional appends.

On storage: ``__consumer_groups/<group>/`` is the directory of the log (`StateLog`).
"""

from __future__ import annotations

from typing import ClassVar

from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.records import GroupRecord, from_json
from spark_log.log import StateLog
from spark_log.storage import GROUPS_DIRECTORY


class GroupLog(StateLog[Group, GroupRecord]):
    """Reads and changes one group. For one thread at a time."""

    parent_directory: ClassVar[str] = GROUPS_DIRECTORY
    topic_id: ClassVar[str] = "AAAAAAAAAAAAAAAAAAAAAg"
    if_truncated: ClassVar[str] = (
        "; or start a new log above the committed generation: spark-log groups repair --execute"
    )

    @staticmethod
    def _initial(name: str) -> Group:
        return Group(name)

    @staticmethod
    def _parse(value: bytes) -> GroupRecord:
        return from_json(value)
