"""``spark-log groups``: consumer groups, as kafka-consumer-groups."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.commands.groups_repair import repair_groups
from spark_log.cli.commands.groups_reset import reset_offsets
from spark_log.cli.format import (
    Output,
    counted,
    print_json,
    print_lag,
    print_members,
    print_note,
    print_states,
    print_table,
    print_text,
)
from spark_log.cli.options import (
    Groups,
    IsolationLevelOption,
    Root,
    TopicPartitionsOption,
    complete_groups,
    parse_partitions,
    with_option_groups,
)
from spark_log.cli.terminal import is_confirmed, with_examples
from spark_log.errors import InvalidConfigurationError
from spark_log.util import printable

app = typer.Typer(rich_markup_mode=None)


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
            help="Only groups in this state: Empty, Stable, Reconciling, PreparingRebalance or "
            "CompletingRebalance. Repeatable.",
        ),
    ] = None,
) -> None:
    """List the groups that have members or committed offsets."""
    groups = root.admin().list_groups(states_filter=state)
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
    groups: Groups,
    root: Root,
    output: Output,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: show the partitions of each member.")
    ] = False,
    isolation_level: IsolationLevelOption = "read_uncommitted",
) -> None:
    """Describe groups: lag, members or state.

    Lag is the number of unread records that can be read; in seconds it is the age of the first of
    them. Deleted is the number of records that were deleted before the group read them. With
    --isolation-level read_committed, lag counts up to the last stable offset.
    """
    if members and state:
        raise InvalidConfigurationError("--members or --state: give one of the two")
    admin = root.admin()
    described = admin.describe_groups(groups.ids(admin))
    if members:
        print_members(output, described, verbose)
    elif state:
        print_states(output, described)
    else:
        lags = admin.group_lags(described, isolation_level=isolation_level)
        print_lag(output, described, lags)


@app.command("members")
@with_examples("spark-log groups members reports --verbose")
@with_option_groups
def group_members(
    groups: Groups,
    root: Root,
    output: Output,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show partitions, too.")] = False,
) -> None:
    """Show the members of groups, as describe --members."""
    admin = root.admin()
    described = admin.describe_groups(groups.ids(admin))
    print_members(output, described, verbose)


@app.command("delete")
@with_examples("spark-log groups delete reports --yes")
@with_option_groups
def delete_groups(
    groups: Groups,
    root: Root,
    output: Output,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete groups without members.

    Their committed offsets are deleted, too.

    Asks first, on a terminal. Without a terminal, --yes is required.
    """
    admin = root.admin()
    names = groups.ids(admin)
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
    if group_id and group:
        raise InvalidConfigurationError("the group is given twice: give GROUP or --group, not both")
    name = group_id or group
    if not name or not topic:
        missing = " and ".join(([] if name else ["GROUP"]) + ([] if topic else ["--topic"]))
        raise InvalidConfigurationError(f"which offsets? Give {missing}")
    admin = root.admin()
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
