"""``spark-log groups reset-offsets``: change the committed offsets of groups."""

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

from spark_log.admin import Admin, OffsetResetPlanner, ResetPlan
from spark_log.cli.format import (
    Output,
    print_bytes,
    print_json,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.options import (
    Groups,
    Root,
    TopicPartitionsOption,
    parse_partitions,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.cluster import Cluster
from spark_log.config import parse_duration, parse_time_ms, parse_time_us
from spark_log.errors import GroupNotEmptyError, InvalidConfigurationError
from spark_log.types import OffsetAndMetadata, OffsetSpec, TopicPartition
from spark_log.util import printable


@with_examples(
    "spark-log groups reset-offsets reports --all-topics --to-earliest --execute",
    "spark-log groups reset-offsets reports --topic flights:0 --shift-by -1",
)
@with_option_groups
def reset_offsets(
    groups: Groups,
    root: Root,
    output: Output,
    topic: TopicPartitionsOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions with a committed offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the log end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset, or else the log end.")
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To the first record at or after TIME."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="PnDTnHnMnS",
            help="To the first record that is not older than this.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="By N offsets, back if N is negative."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="To this offset.")
    ] = None,
    to_committed_at: Annotated[
        str | None,
        typer.Option(
            "--to-committed-at", metavar="TIME", help="To the offset that was committed at TIME."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="To the offsets in a file with lines topic,partition,offset; for several groups "
            "group,topic,partition,offset. --export prints this form.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the new offsets (default).")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print in the form of --from-file.")
    ] = False,
) -> None:
    """Change the committed offsets of groups.

    Give --topic or --all-topics, and one option that chooses the new offsets. The new offsets are
    only shown, unless --execute is given. The groups must not have members.
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
        raise InvalidConfigurationError("--dry-run or --execute: give one of the two")
    _check_scope(bool(topic), all_topics, from_file is not None)
    cluster = root.cluster()
    admin = root.admin()
    names = groups.ids(admin)
    planned = _read_plan(from_file, names) if from_file else {}
    from_ms = _time_ms(cluster, to_datetime, by_duration)
    at_us = parse_time_us("--to-committed-at", to_committed_at) if to_committed_at else 0
    found: dict[str, ResetPlan] = {}
    for name in names:
        _check_empty(admin, name)
        resets = OffsetResetPlanner(cluster, admin, name)
        some = parse_partitions(cluster.image(), topic) if topic else sorted(resets.committed())
        if all_topics and not some and to_committed_at is None:
            admin.describe_groups([name])  # raises an error if the group does not exist
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
            offsets = {tp: OffsetAndMetadata(at) for tp, at in reset.offsets.items()}
            admin.alter_group_offsets(name, offsets)
    _print(output, found, execute, export)


def _only_one(ways: dict[str, bool]) -> str:
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) != 1:
        got = f"; got {' and '.join(given)}" if given else ""
        raise InvalidConfigurationError(f"to which offsets? Give one of {', '.join(ways)}{got}")
    return given[0]


def _check_scope(has_topic: bool, all_topics: bool, has_file: bool) -> None:
    if has_file and (has_topic or all_topics):
        raise InvalidConfigurationError(
            "--from-file names the partitions: give no --topic and no --all-topics with it"
        )
    if has_topic == all_topics and not has_file:
        raise InvalidConfigurationError("which topics? Give --topic or --all-topics")


def _check_empty(admin: Admin, group_id: str) -> None:
    """Refuse a group with members, before new offsets are shown."""
    members = admin.group_members(group_id)
    if members:
        raise GroupNotEmptyError(
            f"offsets of group {group_id!r} can only be reset while it has no members: stop "
            f"{', '.join(members[:3])} first. If its process has ended, remove it with "
            "Admin.remove_group_members",
            group_id=group_id,
            members=members,
        )


def _time_ms(cluster: Cluster, to_datetime: str | None, by_duration: str | None) -> int:
    """Return the requested point in time, in whole milliseconds since the epoch; 0 if none."""
    if to_datetime is not None:
        return max(0, parse_time_ms("--to-datetime", to_datetime))
    if by_duration is None:
        return 0
    duration = parse_duration("--by-duration", by_duration)
    return max(0, cluster.clock.time_us() // 1000 - duration // timedelta(milliseconds=1))


def _read_plan(path: Path, names: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the new offsets in a file, by group and partition.

    Raises:
        InvalidConfigurationError: the file has another form, or has no line for a group.
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
                tp, at = TopicPartition(topic, int(partition)), int(offset)
            except ValueError:
                raise InvalidConfigurationError(
                    f"{path}, line {number}: expected "
                    f"{'' if len(names) == 1 else 'group,'}topic,partition,offset, got "
                    f"{','.join(row)!r}"
                ) from None
            if tp in planned.setdefault(name, {}):
                raise InvalidConfigurationError(f"{path}, line {number}: {tp} is given twice")
            planned[name][tp] = at
    missing = [name for name in names if name not in planned]
    if missing:
        raise InvalidConfigurationError(f"{path} has no line for group {missing[0]!r}")
    return planned


def _print_exported(lines: str) -> None:
    """Print the form of --from-file: exact bytes, but safe text on a terminal."""
    if sys.stdout.isatty():
        print_text(lines.rstrip("\n"))
    else:
        print_bytes(lines.encode())


def _print(output: Output, found: dict[str, ResetPlan], execute: bool, export: bool) -> None:
    for reset in found.values():
        for note in reset.notes:
            print_note(printable(note))
    rows: list[list[object]] = [
        [name, tp.topic, tp.partition, offset]
        for name, reset in found.items()
        for tp, offset in sorted(reset.offsets.items())
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
        print_note("Nothing was changed. Give --execute to commit these offsets.")
