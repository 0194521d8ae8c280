"""The checks at the end of a campaign. Each returns what is wrong, as lines of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from spark_log import TopicPartition
from spark_log.testing.history import Operation, Outcome, Send, check_history
from tests.faults.group_history import Row
from tests.faults.operation_notes import read_of_log, read_operations
from tests.gateway.campaign.java_tools import JavaProducer, lost_sends
from tests.gateway.campaign.members import MemberEvent
from tests.gateway.campaign.topics import COPIES, EVENTS

Log: TypeAlias = Sequence[tuple[int, str]]
"""The committed records of a partition: offset and value."""

Logs: TypeAlias = Mapping[TopicPartition, Log]

_SHOWN = 20
_CLOCK_S = 0.003
"""Two processes note times of one clock, in whole milliseconds."""


def all_operations(
    notes: Path, java: Iterable[Any], producers: Iterable[JavaProducer], logs: Logs
) -> list[Operation]:
    """Return the history of all clients, with the logs themselves as the last reader."""
    found = list(read_operations(notes))
    for tool in java:
        operations = tool.operations()
        found += operations
        if tool in producers:
            values = {each: [value for _, value in log] for each, log in logs.items()}
            events = {each: those for each, those in values.items() if each.topic == EVENTS}
            found += lost_sends(tool, operations, events)
    # The copiers note no record: each of their copies is the send of a record of `EVENTS`.
    copies = [
        Send(TopicPartition(COPIES, each.partition), value)
        for each, log in logs.items()
        if each.topic == EVENTS
        for _, value in log
    ]
    found.extend(
        Operation("copiers", number, [send], Outcome.UNKNOWN) for number, send in enumerate(copies)
    )
    return [*found, *(read_of_log(*each) for each in logs.items())]


def check_operations(operations: Sequence[Operation]) -> list[str]:
    """The history checker finds nothing: no record that is lost, doubled, torn or skipped."""
    return [str(each) for each in check_history(operations).anomalies]


def check_copies(logs: Logs) -> list[str]:
    """Each partition of the copies has the values of its input, once, and in the same order."""
    wrong = []
    for partition, log in logs.items():
        if partition.topic != EVENTS:
            continue
        source = [value for _, value in log]
        copied = [value for _, value in logs[TopicPartition(COPIES, partition.partition)]]
        if source != copied:
            at = next(
                (n for n, (a, b) in enumerate(zip(source, copied, strict=False)) if a != b),
                min(len(source), len(copied)),
            )
            wrong.append(
                f"partition {partition.partition} has {len(source)} records and {len(copied)} "
                f"copies; they differ from number {at} on: {source[at : at + 3]} and "
                f"{copied[at : at + 3]}"
            )
    return wrong


def check_positions(rows: Sequence[Row]) -> list[str]:
    """The committed offsets of a group never go back, in the order that readers see."""
    wrong = []
    latest: dict[TopicPartition, Row] = {}
    for row in rows:
        before = latest.get(row.partition)
        is_newest = before is None or (before.generation, before.stamp) < (
            row.generation,
            row.stamp,
        )
        if before is not None and is_newest and row.offset < before.offset:
            wrong.append(
                f"{row.partition}: committed {before.offset} in generation {before.generation} by "
                f"{before.member_id}, then {row.offset} in {row.generation} by {row.member_id} "
                f"(version {row.version})"
            )
        if is_newest:
            latest[row.partition] = row
    return wrong[:_SHOWN]


def check_commits(
    events: Sequence[MemberEvent],
    committed: Mapping[str, Mapping[TopicPartition, int]],
    keep_positions: Container[str],
) -> list[str]:
    """A new owner begins where an earlier owner's acknowledged commit was, or behind it.

    Args:
        events: what happened to all members.
        keep_positions: the members of `PythonMember`, which may begin where they were before.
        committed: group → partition → the committed offset at the end.
    """
    wrong: list[str] = []
    commits: dict[Any, list[tuple[float, int, str]]] = defaultdict(list)
    for event in events:
        if event.kind == "committed":
            for partition, offset in event.offsets.items():
                commits[event.group, partition].append((event.at_s, offset, event.member))
    for (group, partition), those in commits.items():
        most = max(each[1] for each in those)
        found = committed[group].get(partition, 0)
        if found < most:
            wrong.append(f"{group}: {most} was committed in {partition}, and it ends at {found}")
    for group, partition, member, assigned_s, first in _beginnings(events):
        before = [each for each in commits[group, partition] if each[0] < assigned_s - _CLOCK_S]
        at_s, offset, by = max(before, key=lambda each: each[1], default=(0.0, 0, ""))
        if first < offset and member not in keep_positions:
            wrong.append(
                f"{group}: {member} began at {first} of {partition}; {by} had committed {offset} "
                f"{assigned_s - at_s:.2f} s before {member} was assigned it"
            )
    return wrong[:_SHOWN]


def _beginnings(
    events: Sequence[MemberEvent],
) -> Iterable[tuple[str, TopicPartition, str, float, int]]:
    """Yield the first offset that a member read after each assignment of a partition."""
    assigned: dict[tuple[str, TopicPartition], float] = {}
    for event in events:  # those of each member are in order
        if event.kind == "assigned":
            assigned |= {(event.member, each): event.at_s for each in event.offsets}
        elif event.kind == "polled":
            for partition, first in event.offsets.items():
                at_s = assigned.pop((event.member, partition), None)
                if at_s is not None:
                    yield event.group, partition, event.member, at_s, first


def check_owners(events: Sequence[MemberEvent]) -> list[str]:
    """A member that gave up a partition, and was not thrown out, had it alone until then."""
    wrong = []
    owned: dict[tuple[str, TopicPartition], list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        if event.kind == "assigned":
            for partition in event.offsets:
                owned[event.group, partition].append((event.at_s, event.member))
    since: dict[tuple[str, TopicPartition], float] = {}
    for event in events:
        if event.kind == "assigned":
            since |= {(event.member, each): event.at_s for each in event.offsets}
        elif event.kind in ("revoked", "lost"):
            for partition in event.offsets:
                began_s = since.pop((event.member, partition), None)
                if began_s is None or event.kind == "lost":
                    continue
                for at_s, member in owned[event.group, partition]:
                    if member != event.member and began_s < at_s < event.at_s - _CLOCK_S:
                        wrong.append(
                            f"{event.group}: {member} got {partition} "
                            f"{event.at_s - at_s:.2f} s before {event.member} gave it up"
                        )
    return wrong[:_SHOWN]


def check_all_read(events: Sequence[MemberEvent], logs: Logs, groups: Iterable[str]) -> list[str]:
    """Each group has read every record."""
    read: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event.kind == "polled":
            for partition, first in event.offsets.items():
                read[event.group, partition].append((first, event.ends[partition]))
    wrong = []
    for group in groups:
        for partition, log in logs.items():
            if partition.topic != EVENTS:
                continue
            due = 0
            for first, end in sorted(read[group, partition]):
                if first > due:
                    break
                due = max(due, end)
            last = log[-1][0] + 1 if log else 0
            if due < last:
                wrong.append(f"{group}: nobody read {due} of {partition}, which ends at {last}")
    return wrong


def acknowledged_sends(operations: Iterable[Operation]) -> dict[str, int]:
    """Return the number of acknowledged records by client."""
    found: dict[str, int] = defaultdict(int)
    for operation in operations:
        if operation.outcome is Outcome.COMMITTED:
            found[operation.process] += sum(isinstance(each, Send) for each in operation.actions)
    return {name: count for name, count in found.items() if count}
