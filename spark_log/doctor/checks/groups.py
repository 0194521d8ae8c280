"""Checks that consumer groups make progress, and that their committed offsets are in the log.

Committed offsets are read before the logs, so that none seems to be after the log's end. The
waiting time of records is measured by the dates of their files, not by their timestamps, which may
be old in any topic. A group that never committed an offset is not checked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

from spark_log.coordinator import CommittedOffset, Group, GroupLog, newest_heartbeat_us
from spark_log.doctor.check import NotCheckedError, PartitionCheck
from spark_log.doctor.checks.offsets_table import offsets_table
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
)
from spark_log.doctor.partition_examination import PartitionExamination
from spark_log.errors import CorruptRecordError
from spark_log.log import Lag, StateView
from spark_log.types import TopicPartition

GROUP_STUCK = Problem(
    "group-stuck",
    Severity.ERROR,
    "A group has members and unread records, and commits nothing: its members hang, or fail at a "
    "record again and again.",
)
GROUP_WITHOUT_MEMBERS = Problem(
    "group-without-members",
    Severity.WARNING,
    "A group has no members, and its lag grows: its consumers were stopped.",
)
MEMBERS_GONE = Problem(
    "group-members-gone",
    Severity.WARNING,
    "A group has members that send no heartbeats, and no client expires them: all of its "
    "processes have ended.",
)
REBALANCE_STUCK = Problem(
    "rebalance-stuck",
    Severity.ERROR,
    "Partitions of a group have waited for a long time to be released by the members that have to "
    "give them up.",
)
GROUP_DAMAGED = Problem(
    "group-damaged",
    Severity.ERROR,
    "The log of a group is damaged, or its files are missing: its members cannot join.",
)
OFFSET_BEFORE_START = Problem(
    "offset-before-start",
    Severity.WARNING,
    "A committed offset lies before the log's start: records were deleted before the group read "
    "them.",
)
OFFSET_AFTER_END = Problem(
    "offset-after-end",
    Severity.ERROR,
    "A committed offset lies after the log's end: records that the group has read were lost, or "
    "the offset was set by hand.",
)

_US: Final = 1000
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class _Behind:
    """A partition in which a group has unread records.

    Attributes:
        tp: the partition.
        lag: the number of readable offsets, from the committed offset to the log's end.
        waiting_us: the minimum time for which the first unread record has been in the log.
        idle_us: the time since the group's last commit in the partition.
        newest_age_us: the age of the newest segment.
        is_growing: whether records were appended after the first unread one.
        is_owned: whether a member has the partition.
    """

    tp: TopicPartition
    lag: int
    waiting_us: int
    idle_us: int
    newest_age_us: int
    is_growing: bool
    is_owned: bool

    def __str__(self) -> str:
        return (
            f"{self.tp.topic}-{self.tp.partition} ({self.lag:,} records, the first has waited for "
            f"{duration_text(self.waiting_us)})"
        )


class GroupsCheck(PartitionCheck):
    """Compares committed offsets with the logs, and with the members of the groups."""

    name: ClassVar[str] = "groups"
    title: ClassVar[str] = "consumer groups that make no progress"
    problems: ClassVar[tuple[Problem, ...]] = (
        GROUP_STUCK,
        REBALANCE_STUCK,
        GROUP_DAMAGED,
        OFFSET_AFTER_END,
        GROUP_WITHOUT_MEMBERS,
        MEMBERS_GONE,
        OFFSET_BEFORE_START,
    )

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], list[tuple[str, CommittedOffset]]] = {}
        self._views: dict[str, StateView[Group]] = {}
        self._beats_us: dict[str, int] = {}
        self._behind: dict[str, list[_Behind]] = {}
        self._lock = threading.Lock()

    def begin(self, examination: Examination) -> Iterator[Finding]:
        """Read members and committed offsets; return findings about rebalances that do not end."""
        table = offsets_table(examination)
        if examination.offsets_error is not None:
            raise NotCheckedError("the offsets table cannot be read")
        wanted = examination.groups
        known = set()
        for group_id, positions in table.all_committed_offsets().items():
            known.add(group_id)
            if wanted and group_id not in wanted:
                continue
            for key, committed in positions.items():
                place = key.topic_id, key.partition
                self._committed.setdefault(place, []).append((group_id, committed))
        cluster = examination.cluster

        def view(group_id: str) -> tuple[StateView[Group], int]:
            found = GroupLog.view(cluster.store, group_id, cluster.clock)
            beat_us = newest_heartbeat_us(cluster.store, group_id) if found.state.members else 0
            return found, beat_us

        ids = [
            each
            for each in GroupLog.list_names(cluster.store, cluster.clock)
            if not wanted or each in wanted
        ]
        if missing := wanted - known - set(ids):
            raise NotCheckedError(f"there is no group {', '.join(map(repr, sorted(missing)))}")
        for group_id, outcome in examination.outcomes(view, ids):
            if isinstance(outcome.error, CorruptRecordError):
                yield _damaged(group_id, outcome.error)
                continue
            found, beat_us = outcome.result()
            if found.state.members:
                self._views[group_id], self._beats_us[group_id] = found, beat_us
        for group_id in sorted(self._views):
            yield from self._rebalance(examination, group_id)

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about offsets outside of the log; collect groups with unread records."""
        place = partition.topic.topic_id, partition.tp.partition
        for group_id, committed in self._committed.get(place, ()):
            view, offset = partition.view, committed.offset
            lag = Lag.of(offset, view.log_start_offset, view.log_end_offset)
            if offset > view.log_end_offset:
                yield _after_end(group_id, partition, offset)
            if lag.deleted:
                yield _before_start(group_id, partition, committed, lag)
            if lag.unread:
                behind = self._behind_in(group_id, partition, committed, lag)
                with self._lock:
                    self._behind.setdefault(group_id, []).append(behind)

    def end(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about groups that make no progress."""
        stuck_us = examination.limits.stuck_ms * _US
        for group_id in sorted({*self._behind, *self._views}):
            behind = sorted(self._behind.get(group_id, ()), key=lambda each: -each.waiting_us)
            stuck = [
                each for each in behind if each.waiting_us > stuck_us and each.idle_us > stuck_us
            ]
            if group_id in self._views:
                if (gone := self._gone(examination, group_id, stuck)) is not None:
                    yield gone
                elif owned := [each for each in stuck if each.is_owned]:
                    yield self._stuck(group_id, owned)
                continue
            # The lag does not grow if no producer writes to the topic any more.
            alive_us = examination.limits.overdue_ms * _US
            growing = [each for each in stuck if each.is_growing and each.newest_age_us < alive_us]
            if growing:
                yield _without_members(group_id, growing)

    # --- findings --------------------------------------------------------------------------------

    def _behind_in(
        self, group_id: str, partition: PartitionExamination, committed: CommittedOffset, lag: Lag
    ) -> _Behind:
        view, now_us = partition.view, partition.examination.now_us
        appeared_us = view.live.appeared_us(lag.first_offset)
        last = view.live.segments[-1]
        group = self._views[group_id].state if group_id in self._views else None
        return _Behind(
            partition.tp,
            lag.unread,
            now_us - appeared_us,
            now_us - committed.commit_timestamp_us,
            now_us - last.file.modified_us,
            last.start_offset > lag.first_offset,
            group is not None and partition.tp in group.owners,
        )

    def _rebalance(self, examination: Examination, group_id: str) -> Iterator[Finding]:
        view = self._views[group_id]
        holding = [each for each in view.state.members.values() if each.revoking]
        if not holding:
            return
        timeout_ms = max(each.rebalance_timeout_ms for each in holding)
        age_us = examination.now_us - view.changed_us
        if age_us <= max(timeout_ms, examination.limits.stuck_ms) * _US:
            return
        names = ", ".join(f"{each.member_id} ({each.client_host})" for each in holding[:_SHOWN])
        count = sum(len(each.revoking) for each in holding)
        yield REBALANCE_STUCK.finding(
            Subject.of_group(group_id),
            f"{count} partitions have waited for {duration_text(age_us)} to be released by {names}",
            remedy="End the process of this member: the others expire it after its session timeout",
            command=shell_command("groups", "describe", group_id, "--members"),
            evidence=f"generation {view.state.generation} of the group's log",
        )

    def _gone(
        self, examination: Examination, group_id: str, stuck: list[_Behind]
    ) -> Finding | None:
        group = self._views[group_id].state
        if group.classic is not None or group.consumer is not None:
            return None  # Kafka's clients send their heartbeats to a gateway, which keeps none
        members = self._views[group_id].state.members.values()
        newest_us = max(self._beats_us[group_id], self._views[group_id].changed_us)
        silent_us = examination.now_us - newest_us
        timeout_ms = max(each.session_timeout_ms for each in members)
        if silent_us <= max(timeout_ms, examination.limits.stuck_ms) * _US:
            return None
        lag = f"; unread: {_partitions(stuck)}" if stuck else ""
        return MEMBERS_GONE.finding(
            Subject.of_group(group_id),
            f"its {len(members)} members have sent no heartbeat for {duration_text(silent_us)}: "
            f"their processes have ended{lag}",
            remedy="Start its consumers: they expire the old members",
            command=shell_command("groups", "describe", group_id, "--members"),
            evidence="the dates of the members' heartbeat files",
        )

    def _stuck(self, group_id: str, stuck: list[_Behind]) -> Finding:
        view = self._views[group_id]
        owners = {view.state.owners[each.tp] for each in stuck}
        members = [view.state.members[each] for each in sorted(owners)]
        names = ", ".join(f"{each.member_id} ({each.client_host})" for each in members[:_SHOWN])
        idle_us = min(each.idle_us for each in stuck)
        return GROUP_STUCK.finding(
            Subject.of_group(group_id),
            f"its members send heartbeats, and have committed nothing for {duration_text(idle_us)} "
            f"in {_partitions(stuck)}; they are read by {names}",
            remedy="Read the logs of this member: it hangs, or fails at the record with the "
            "committed offset",
            command=shell_command("groups", "describe", group_id),
            evidence="committed offsets, dates of the segments, and the group's log",
        )


def _partitions(behind: list[_Behind]) -> str:
    shown = ", ".join(map(str, islice(behind, _SHOWN)))
    return f"{shown} and {len(behind) - _SHOWN} more" if len(behind) > _SHOWN else shown


def _damaged(group_id: str, error: CorruptRecordError) -> Finding:
    return GROUP_DAMAGED.finding(
        Subject.of_group(group_id),
        str(error),
        remedy="Stop its consumers, see what can be saved, then repair it with --execute",
        command=shell_command("groups", "repair"),
        evidence="the group's log",
    )


def _without_members(group_id: str, behind: list[_Behind]) -> Finding:
    idle_us = min(each.idle_us for each in behind)
    return GROUP_WITHOUT_MEMBERS.finding(
        Subject.of_group(group_id),
        f"it has no members, committed nothing for {duration_text(idle_us)}, and its lag grows: "
        f"{_partitions(behind)}",
        remedy="Start its consumers; or delete the group (spark-log groups delete) if nobody needs "
        "it",
        command=shell_command("groups", "describe", group_id),
        evidence="committed offsets, dates of the segments, and the group's log",
    )


def _before_start(
    group_id: str, partition: PartitionExamination, committed: CommittedOffset, lag: Lag
) -> Finding:
    topic, number = partition.tp
    return OFFSET_BEFORE_START.finding(
        _place(group_id, partition),
        f"its committed offset in {topic}-{number} is {committed.offset}, and the log starts at "
        f"{lag.first_offset}: {lag.deleted:,} offsets were deleted before it read them, and "
        f"{lag.unread:,} are left to read",
        remedy="Its consumers continue where auto.offset.reset says; or reset the offset while the "
        "group has no members. Keep records for longer than a consumer may be stopped",
        command=_reset(group_id, partition, "--to-earliest"),
        evidence="committed offsets and a listing",
    )


def _after_end(group_id: str, partition: PartitionExamination, offset: int) -> Finding:
    end = partition.view.log_end_offset
    topic, number = partition.tp
    return OFFSET_AFTER_END.finding(
        _place(group_id, partition),
        f"its committed offset in {topic}-{number} is {offset}, and the log ends at {end}: new "
        f"records before offset {offset} would be skipped",
        remedy="Find out whether records were lost (unclean election, a restored copy); then reset "
        "the offset while the group has no members",
        command=_reset(group_id, partition, "--to-latest"),
        evidence="committed offsets and a listing",
    )


def _place(group_id: str, partition: PartitionExamination) -> Subject:
    topic, number = partition.tp
    return Subject(f"group {group_id}", topic, number, group_id)


def _reset(group_id: str, partition: PartitionExamination, to: str) -> str:
    topic, number = partition.tp
    return shell_command("groups", "reset-offsets", group_id, "--topic", f"{topic}:{number}", to)
