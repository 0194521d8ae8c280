"""``spark-log groups repair``: repair the table of committed offsets, or the logs of groups."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_log.cli.format import Output, counted, print_json, print_note, print_text
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.util import printable

if TYPE_CHECKING:
    from spark_log.coordinator import LostFile, RepairReport

_SHOWN = 20


@with_examples("spark-log groups repair")
@with_option_groups
def repair_groups(
    root: Root,
    output: Output,
    execute: Annotated[
        bool, typer.Option("--execute", help="Repair. All consumers must be stopped.")
    ] = False,
    with_unnamed: Annotated[
        bool,
        typer.Option(
            "--with-unnamed",
            help="Also use files that no readable version of the table lists. Such a file may "
            "belong to a commit that was refused.",
        ),
    ] = False,
) -> None:
    """Repair committed offsets.

    Searches for damage, and shows which offsets can be saved and which are lost. With --execute the
    saved offsets become the new table. No file is deleted.
    """
    from spark_log.coordinator import OffsetsRepair

    report = OffsetsRepair(root.cluster()).run(execute=execute, with_unnamed=with_unnamed)
    if output.is_json:
        print_json({**asdict(report), "is_sound": report.is_sound})
    else:
        _print(report, with_unnamed)
    if not report.is_sound and not report.is_repaired:
        print_note("Nothing was changed. To repair, stop all consumers and give --execute.")
        raise typer.Exit(1)


def _print(report: RepairReport, with_unnamed: bool) -> None:
    if report.is_sound:
        print_text("Nothing to repair.")
        return
    if report.problem:
        print_text(f"Damage: {printable(report.problem)}")
        some = ", ".join(map(printable, report.groups[:_SHOWN])) + (
            ", …" if len(report.groups) > _SHOWN else ""
        )
        saved = f"{counted(report.rows, 'row')} of {counted(len(report.groups), 'group')}"
        print_text(f"Saved: {saved}{f': {some}' if some else ''}")
        for first, last in _runs(report.lost_versions):
            which = f"version {first}" if first == last else f"versions {first} to {last}"
            print_text(f"Lost: offsets committed in {which}, unless a later file has them")
        for file in report.lost_files:
            print_text(f"Lost: {printable(_file(file))}")
        if report.unnamed_files and not with_unnamed:
            count = counted(len(report.unnamed_files), "file")
            print_text(f"Left out: {count} that no readable version lists (--with-unnamed)")
    for group, fence in report.lagging_groups.items():
        print_text(
            f"Group {group!r} has lost a part of its log; its generation is raised to {fence}"
        )
    if report.is_repaired:
        print_text("Repaired.")


def _file(file: LostFile) -> str:
    rows = "" if file.num_rows < 1 else f", {counted(file.num_rows, 'row')}"
    groups = (
        "" if file.min_group is None else f" of groups {file.min_group!r} to {file.max_group!r}"
    )
    return f"{file.path} ({file.reason}{rows}{groups})"


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
