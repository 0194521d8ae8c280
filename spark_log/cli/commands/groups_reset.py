"""``spark-log groups reset-offsets``: where a group is to go on reading."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from spark_log.admin.admin import Admin
from spark_log.admin.offset_reset import OffsetResetPlanner, ResetPlan
from spark_log.cli.format.output import (
    Output,
    print_bytes,
    print_json,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.group_options import (
    AllGroupsOption,
    GroupOption,
    GroupsArgument,
    TopicOption,
    chosen_groups,
)
from spark_log.cli.group_partitions import parse_partitions
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.root import Root
from spark_log.cli.time_window import parse_time_us
from spark_log.errors import GroupNotEmptyError, InvalidConfigurationError
from spark_log.metadata import Cluster
from spark_log.printable import printable
from spark_log.types import OffsetAndMetadata, OffsetSpec, TopicPartition


@with_option_groups
def reset_offsets(
    root: Root,
    output: Output,
    groups: GroupsArgument = None,
    group: GroupOption = None,
    all_groups: AllGroupsOption = False,
    topic: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Wherever the group has a position.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log's start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the log's end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To where it is; else to the log's end.")
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To the first record at or after it."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="PnDTnHnMnS", help="The same, so long before now."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many records on, or back.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="There.")
    ] = None,
    to_committed_at: Annotated[
        str | None,
        typer.Option("--to-committed-at", metavar="TIME", help="To what it had committed by then."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="To what a file says: lines of topic,partition,offset; of "
            "group,topic,partition,offset for several groups. As --export prints them.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show. The default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print what --from-file reads.")] = False,
) -> None:
    """Set where a group goes on reading.

    Only shown, unless --execute is given. The group may have no members. One way to say where
    to, and --topic or --all-topics to say where.
    """
    way = _only_one(
        {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-current": to_current,
            "--to-datetime": to_datetime is not None,
            "--by-duration": by_duration is not None,
            "--shift-by": shift_by is not None,
            "--to-offset": to_offset is not None,
            "--to-committed-at": to_committed_at is not None,
            "--from-file": from_file is not None,
        }
    )
    if dry_run and execute:
        raise InvalidConfigurationError("--dry-run or --execute: take one of the two")
    _check_scope(bool(topic), all_topics, from_file is not None)
    cluster = root.cluster()
    admin = Admin(root.url, storage_options=root.storage_options)
    names = chosen_groups(admin, groups, group, all_groups)
    planned = _read_plan(from_file, names) if from_file else {}
    from_ms = _time_ms(cluster, to_datetime, by_duration)
    at_us = parse_time_us("--to-committed-at", to_committed_at) if to_committed_at else 0
    found: dict[str, ResetPlan] = {}
    for name in names:
        _check_empty(admin, name)
        resets = OffsetResetPlanner(cluster, admin, name)
        some = parse_partitions(cluster.image(), topic) if topic else sorted(resets.committed())
        if all_topics and not some and to_committed_at is None:
            admin.describe_groups([name])  # which says so where there is no such group
        ways: dict[str, Callable[[], ResetPlan]] = {
            "--to-earliest": partial(resets.to_spec, some, OffsetSpec.EARLIEST),
            "--to-latest": partial(resets.to_spec, some, OffsetSpec.LATEST),
            "--to-current": partial(resets.to_current, some),
            "--to-datetime": partial(resets.to_spec, some, from_ms),
            "--by-duration": partial(resets.to_spec, some, from_ms),
            "--shift-by": partial(resets.shifted, some, shift_by or 0),
            "--to-offset": partial(resets.to_offsets, dict.fromkeys(some, to_offset or 0)),
            "--to-committed-at": partial(resets.to_committed_at, some if topic else None, at_us),
            "--from-file": partial(resets.to_offsets, planned.get(name, {})),
        }
        found[name] = ways[way]()
    if execute:
        for name, reset in found.items():
            offsets = {named: OffsetAndMetadata(at) for named, at in reset.offsets.items()}
            admin.alter_group_offsets(name, offsets)
    _print(output, found, execute, export)


def _only_one(ways: dict[str, bool]) -> str:
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) != 1:
        got = f"; got {' and '.join(given)}" if given else ""
        raise InvalidConfigurationError(f"where to? Give one of {', '.join(ways)}{got}")
    return given[0]


def _check_scope(has_topic: bool, all_topics: bool, has_file: bool) -> None:
    if has_file and (has_topic or all_topics):
        raise InvalidConfigurationError("--from-file says where: give no --topic beside it")
    if has_topic == all_topics and not has_file:
        raise InvalidConfigurationError("where? Give --topic, or --all-topics")


def _check_empty(admin: Admin, group_id: str) -> None:
    """Refuse before anything is shown that could not be done."""
    members = admin.group_members(group_id)
    if members:
        raise GroupNotEmptyError(
            f"positions of group {group_id!r} can only be reset while it has no members: stop "
            f"{', '.join(members[:3])} first",
            group_id=group_id,
            members=members,
        )


def _time_ms(cluster: Cluster, to_datetime: str | None, by_duration: str | None) -> int:
    """Return the first whole millisecond that is not before what is asked for."""
    if to_datetime is not None:
        return max(0, -(-parse_time_us("--to-datetime", to_datetime) // 1000))
    if by_duration is None:
        return 0
    try:
        if not by_duration.lstrip("-").startswith("P"):
            raise ValueError(by_duration)
        duration = TypeAdapter(timedelta).validate_python(by_duration)
    except (ValidationError, ValueError):
        raise typer.BadParameter(
            f"{by_duration!r} is not a duration like P1DT2H30M", param_hint="'--by-duration'"
        ) from None
    return max(0, cluster.clock.time_us() // 1000 - duration // timedelta(milliseconds=1))


def _read_plan(path: Path, names: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return group → partition → offset.

    Raises:
        InvalidConfigurationError: the file has another form, or says nothing about a group.
    """
    planned: dict[str, dict[TopicPartition, int]] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            cells = [cell.strip() for cell in row]
            if len(cells) == 3 and len(names) == 1:
                cells = [names[0], *cells]
            try:
                name, topic, partition, offset = cells
                named, at = TopicPartition(topic, int(partition)), int(offset)
            except ValueError:
                raise InvalidConfigurationError(
                    f"{path}, line {number}: expected "
                    f"{'' if len(names) == 1 else 'group,'}topic,partition,offset, got "
                    f"{','.join(row)!r}"
                ) from None
            if named in planned.setdefault(name, {}):
                raise InvalidConfigurationError(f"{path}, line {number}: {named} is there twice")
            planned[name][named] = at
    missing = [name for name in names if name not in planned]
    if missing:
        raise InvalidConfigurationError(f"{path} says nothing about group {missing[0]!r}")
    return planned


def _print_exported(lines: str) -> None:
    """Print what --from-file reads: exactly, unless a person looks at it."""
    if sys.stdout.isatty():
        print_text(lines.rstrip("\n"))
    else:
        print_bytes(lines.encode())


def _print(output: Output, found: dict[str, ResetPlan], execute: bool, export: bool) -> None:
    for reset in found.values():
        for note in reset.notes:
            print_note(printable(note))
    rows: list[list[object]] = [
        [name, named.topic, named.partition, offset]
        for name, reset in found.items()
        for named, offset in sorted(reset.offsets.items())
    ]
    if export:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(rows if len(found) > 1 else [row[1:] for row in rows])
        if rows:
            _print_exported(text.getvalue())
    elif output.is_json:
        names = ("group_id", "topic", "partition", "new_offset")
        documents = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"executed": execute, "offsets": documents})
    else:
        print_table(["Group", "Topic", "Partition", "New-offset"], rows)
    if not execute and not export:
        print_note("Nothing was changed: give --execute to do it.")
