"""``spark-log groups``: consumer groups, as kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from spark_log.admin.admin import Admin
from spark_log.admin.group_descriptions import (
    GroupDescription,
    GroupPartitionLag,
    MemberDescription,
)
from spark_log.cli.commands.groups_repair import repair_groups
from spark_log.cli.commands.groups_reset import reset_offsets
from spark_log.cli.completion import complete_groups
from spark_log.cli.confirmation import is_confirmed
from spark_log.cli.examples import with_examples
from spark_log.cli.format.output import (
    Output,
    counted,
    print_json,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.group_options import (
    AllGroupsOption,
    GroupOption,
    GroupsArgument,
    TopicPartitionsOption,
    chosen_groups,
)
from spark_log.cli.group_partitions import parse_partitions
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.root import Root
from spark_log.errors import InvalidConfigurationError
from spark_log.printable import printable
from spark_log.types import TopicPartition

app = typer.Typer(rich_markup_mode=None)

_NONE = "-"


@app.command("list")
@with_examples("spark-log groups list", "spark-log groups list --state Empty")
@with_option_groups
def list_groups(
    root: Root,
    output: Output,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only groups in this state: Empty, Stable or Reconciling. Repeatable.",
        ),
    ] = None,
) -> None:
    """List the groups that have members or committed offsets."""
    groups = _admin(root).list_groups(states_filter=state)
    if output.is_json:
        names = ("group_id", "protocol_type", "group_state")
        print_json({"groups": [{name: getattr(each, name) for name in names} for each in groups]})
        return
    for each in groups:
        print_text(printable(each.group_id))


@app.command("describe")
@with_examples(
    "spark-log groups describe reports",
    "spark-log groups describe reports --members --verbose",
)
@with_option_groups
def describe_groups(
    root: Root,
    output: Output,
    groups: GroupsArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: show the partitions of each member.")
    ] = False,
) -> None:
    """Describe groups: lag, members or state.

    Lag is shown in records, and in seconds as the age of the first unread record.
    """
    if members and state:
        raise InvalidConfigurationError("--members or --state: give one of the two")
    admin = _admin(root)
    described = admin.describe_groups(chosen_groups(admin, groups, group, all_groups))
    if members:
        _print_members(output, described, verbose)
    elif state:
        _print_states(output, described)
    else:
        _print_lag(output, admin, described)


@app.command("members")
@with_examples("spark-log groups members reports --verbose")
@with_option_groups
def group_members(
    root: Root,
    output: Output,
    groups: GroupsArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show partitions, too.")] = False,
) -> None:
    """Show the members of groups, as describe --members."""
    admin = _admin(root)
    described = admin.describe_groups(chosen_groups(admin, groups, group, all_groups))
    _print_members(output, described, verbose)


@app.command("delete")
@with_examples("spark-log groups delete reports --yes")
@with_option_groups
def delete_groups(
    root: Root,
    output: Output,
    groups: GroupsArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete groups without members.

    Their committed offsets are deleted, too.

    Asks first, on a terminal. Without a terminal, --yes is required.
    """
    admin = _admin(root)
    names = chosen_groups(admin, groups, group, all_groups)
    admin.describe_groups(names)
    if names and not yes and not is_confirmed(f"Delete {counted(len(names), 'group')}?"):
        print_note("Nothing was deleted.")
        raise typer.Exit(1)
    admin.delete_groups(names)
    shown = ", ".join(map(printable, names)) or "nothing"
    output.answer(f"Deleted {shown}.", {"deleted": names})


@app.command("delete-offsets")
@with_examples("spark-log groups delete-offsets reports --topic flights:0")
@with_option_groups
def delete_offsets(
    root: Root,
    output: Output,
    group_id: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", help="Id of the group.", autocompletion=complete_groups),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Id of the group, as an option.",
            autocompletion=complete_groups,
        ),
    ] = None,
    topic: TopicPartitionsOption = None,
) -> None:
    """Delete the committed offsets of a group in some topics.

    No member of the group may be subscribed to these topics.
    """
    name = group_id or group
    if not name or not topic:
        raise InvalidConfigurationError("which offsets? Give GROUP and --topic")
    admin = _admin(root)
    wanted = parse_partitions(root.cluster().image(), topic)
    deleted = admin.delete_group_offsets(name, wanted)
    rows = [
        [each.topic, each.partition, "deleted" if each in deleted else "had no offset"]
        for each in wanted
    ]
    if output.is_json:
        keys = ("topic", "partition", "status")
        rows_json = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"group_id": name, "partitions": rows_json})
    else:
        print_table(["Topic", "Partition", "Status"], rows)


app.command("reset-offsets")(reset_offsets)
app.command("repair")(repair_groups)


def _admin(root: Root) -> Admin:
    return Admin(root.url, storage_options=root.storage_options)


def _print_lag(output: Output, admin: Admin, described: dict[str, GroupDescription]) -> None:
    lags = {group_id: admin.group_lag(group_id) for group_id in described}
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
    columns = ["Group", "Topic", "Partition", "Current-offset", "Log-end-offset", "Lag",
               "Lag-seconds", "Consumer-id", "Host", "Client-id", "Generation"]  # fmt: skip
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
        "lag_seconds": None if lag.lag_ms is None else lag.lag_ms / 1000,
        "metadata": lag.metadata,
        "commit_timestamp_ms": None
        if lag.commit_timestamp_us is None
        else lag.commit_timestamp_us // 1000,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.client_host or None,
    }


def _print_members(output: Output, described: dict[str, GroupDescription], verbose: bool) -> None:
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


def _print_states(output: Output, described: dict[str, GroupDescription]) -> None:
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
