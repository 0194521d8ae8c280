"""``spark-log features``: describe and upgrade features, as kafka-features."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_table, print_text
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples

app = typer.Typer(rich_markup_mode=None)


@app.command("describe")
@with_examples("spark-log features describe")
@with_option_groups
def describe_features(root: Root, output: Output) -> None:
    """Show the features, and the levels that this cluster uses.

    A feature is what a release added to the bytes at rest. Level 0 means that the cluster does not
    use the feature: releases that do not know it can read and write everything.
    """
    found = root.admin().describe_features()
    if output.is_json:
        print_json({"features": [asdict(each) for each in found]})
        return
    columns = ["Feature", "Finalized level", "Max level", "Since release", "What it adds"]
    print_table(
        columns,
        [
            [each.name, each.finalized_level, each.max_level, each.release, each.documentation]
            for each in found
        ],
    )


@app.command("upgrade")
@with_examples("spark-log features upgrade table.version=1")
@with_option_groups
def upgrade_features(
    root: Root,
    output: Output,
    features: Annotated[
        list[str], typer.Argument(metavar="FEATURE=LEVEL...", help="Features and their levels.")
    ],
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check everything and change nothing.")
    ] = False,
) -> None:
    """Finalize levels of features. Older releases refuse to use this cluster from then on.

    There is no way back: a level cannot be lowered. The first use of a feature finalizes it, too.
    """
    levels = dict(map(_parse_level, features))
    root.admin().update_features(levels, validate_only=validate_only)
    if output.is_json:
        print_json({"features": levels, "validate_only": validate_only})
        return
    for name, level in levels.items():
        print_text(f"{name}: level {level} {'can be' if validate_only else 'is'} finalized")


def _parse_level(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise typer.BadParameter(
            f"{text!r} is not a feature and its level, such as table.version=1",
            param_hint="'FEATURE=LEVEL'",
        )
    return name, int(level)
