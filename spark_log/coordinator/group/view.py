"""Reads a group without membership: its state, and the time of its last change."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.group_log import TOPIC_ID, group_directory
from spark_log.coordinator.group.records import from_json
from spark_log.errors import CorruptRecordError
from spark_log.log import LocalLog
from spark_log.storage import GROUPS_DIRECTORY, Store, text_of
from spark_log.util import Clock


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group after its newest record.

    Attributes:
        group: the group; generation 0 if it never had a member.
        changed_us: the time of the newest record by the storage's clock, in microseconds; 0 without
            a record.
    """

    group: Group
    changed_us: int = 0


def view_group(store: Store, group_id: str, clock: Clock) -> GroupView:
    """Return the present state of a group; changes nothing.

    Raises:
        CorruptRecordError: its log is damaged.
        StorageError: it cannot be read.
    """
    return _view(store, group_directory(group_id), group_id, clock)


def list_group_ids(store: Store, clock: Clock) -> list[str]:
    """Return the ids of all groups that ever had a member, sorted.

    Raises:
        CorruptRecordError: the log of a group is damaged.
        StorageError: the groups cannot be read.
    """
    found = []
    for name in store.list_directories(GROUPS_DIRECTORY):
        group_id = text_of(name)
        if group_id is None:  # its id was too long for a file name: read its records
            group_id = _view(store, f"{GROUPS_DIRECTORY}/{name}", None, clock).group.group_id
        found.append(group_id)
    return sorted(filter(None, found))


def _view(store: Store, directory: str, group_id: str | None, clock: Clock) -> GroupView:
    log = LocalLog(store, directory, topic_id=TOPIC_ID, partition=0, clock=clock)
    batches, view = log.read_last()
    if not batches:
        return GroupView(Group(group_id or ""))
    record = from_json(batches[-1].records.column("value")[-1].as_py())
    if group_id is not None and record.group_id != group_id:
        raise CorruptRecordError(
            f"{directory}: the log of group {group_id!r} holds a record of {record.group_id!r}"
        )
    changed_us = view.live.segments[-1].file.modified_us
    return GroupView(Group(record.group_id).replay(record), changed_us)
