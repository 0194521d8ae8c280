"""Groups as tables or JSON: lag, members, states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from spark_log.cli.format.output import Output, print_json, print_note, print_table
from spark_log.types import GroupDescription, GroupPartitionLag, MemberDescription, TopicPartition

_NONE: Final = "-"


def print_lag(
    output: Output,
    described: Mapping[str, GroupDescription],
    lags: Mapping[str, Sequence[GroupPartitionLag]],
) -> None:
    """Print the lag of groups in each partition.

    Args:
        output: form of the answer.
        described: the groups by id.
        lags: group id → its lag in each partition.
    """
    if output.is_json:
        documents = [
            {**_state(described[group_id]), "partitions": [_lag_document(each) for each in lag]}
            for group_id, lag in lags.items()
        ]
        print_json({"groups": documents})
        return
    for group_id, description in described.items():
        if not description.members:
            print_note(f"Group {group_id!r} has no members.")
    columns = [
        "Group",
        "Topic",
        "Partition",
        "Current-offset",
        "Log-end-offset",
        "Lag",
        "Deleted",
        "Lag-seconds",
        "Consumer-id",
        "Host",
        "Client-id",
        "Generation",
    ]
    rows = [_lag_row(described[group_id], each) for group_id, lag in lags.items() for each in lag]
    print_table(columns, rows)


def _lag_row(description: GroupDescription, lag: GroupPartitionLag) -> list[object]:
    member = lag.member
    return [
        description.group_id,
        lag.partition.topic,
        lag.partition.partition,
        lag.current_offset,
        lag.log_end_offset,
        lag.lag,
        lag.deleted,
        None if lag.lag_ms is None else lag.lag_ms / 1000,
        *(_member_cells(member) if member else (_NONE, _NONE, _NONE)),
        description.generation,
    ]


def _lag_document(lag: GroupPartitionLag) -> dict[str, object]:
    member = lag.member
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "current_offset": lag.current_offset,
        "log_end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "deleted": lag.deleted,
        "lag_seconds": None if lag.lag_ms is None else lag.lag_ms / 1000,
        "metadata": lag.metadata,
        "commit_timestamp_ms": None
        if lag.commit_timestamp_us is None
        else lag.commit_timestamp_us // 1000,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.client_host or None,
    }


def print_members(output: Output, described: Mapping[str, GroupDescription], verbose: bool) -> None:
    """Print the members of groups.

    Args:
        output: form of the answer.
        described: the groups by id.
        verbose: whether a table shows the partitions of each member. JSON always does.
    """
    if output.is_json:
        documents = [
            {**_state(each), "members": [_member_document(member) for member in each.members]}
            for each in described.values()
        ]
        print_json({"groups": documents})
        return
    columns = ["Group", "Consumer-id", "Host", "Client-id", "Instance-id", "#Partitions"]
    rows: list[list[object]] = []
    for group_id, description in described.items():
        if not description.members:
            print_note(f"Group {group_id!r} has no members.")
        for member in description.members:
            row = [group_id, *_member_cells(member), member.group_instance_id or _NONE]
            extra = [_partitions(member.assignment)] if verbose else []
            rows.append([*row, len(member.assignment), *extra])
    print_table([*columns, "Assignment"] if verbose else columns, rows)


def print_states(output: Output, described: Mapping[str, GroupDescription]) -> None:
    """Print the states of groups, given by id."""
    if output.is_json:
        print_json({"groups": [_state(each) for each in described.values()]})
        return
    columns = ["Group", "Assignment-strategy", "State", "Generation", "#Members"]
    rows: list[list[object]] = []
    for each in described.values():
        strategy = each.protocol or _NONE
        size = len(each.members)
        rows.append([each.group_id, strategy, each.group_state, each.generation, size])
    print_table(columns, rows)


def _state(description: GroupDescription) -> dict[str, object]:
    return {
        "group_id": description.group_id,
        "state": description.group_state,
        "assignment_strategy": description.protocol or None,
        "generation": description.generation,
        "member_count": len(description.members),
    }


def _member_cells(member: MemberDescription) -> tuple[str, str, str]:
    return member.member_id, member.client_host or _NONE, member.client_id or _NONE


def _member_document(member: MemberDescription) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host or None,
        "assignment": [list(each) for each in member.assignment],
        "revoking": [list(each) for each in member.revoking],
        "pending": [list(each) for each in member.pending],
    }


def _partitions(partitions: Sequence[TopicPartition]) -> str:
    numbers: dict[str, list[str]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}({','.join(some)})" for topic, some in numbers.items()) or _NONE
