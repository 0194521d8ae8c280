"""``spark-log configs``: what settings topics have and where from, and changing them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.output import Output, print_json, print_note, print_table
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.errors import InvalidConfigurationError
from spark_log.types import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType

app = typer.Typer(rich_markup_mode=None)

_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


class EntityType(StrEnum):
    """What ``--entity-type`` takes: of kafka-configs' kinds, those that have settings here."""

    TOPICS = "topics"


EntityTypeOption = Annotated[
    EntityType, typer.Option("--entity-type", help="As kafka-configs; there are only topics.")
]
EntityNameOption = Annotated[
    list[str] | None,
    typer.Option("--entity-name", metavar="NAME", help="A topic, as kafka-configs names it."),
]


@app.command("describe")
@with_option_groups
def describe_configs(
    root: Root,
    output: Output,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which. [default: all]")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also settings that are as they are by default.")
    ] = False,
    entity_type: EntityTypeOption = EntityType.TOPICS,
    entity_name: EntityNameOption = None,
) -> None:
    """Describe settings of topics, and where they come from.

    Without --all only what topics have of their own. --json tells also what each setting means.
    """
    admin = root.admin()
    names = _named(topics, entity_name) or admin.list_topics()
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    described = admin.describe_configs(resources, config_filter="all" if every else "modified")
    entries = [(name, entry) for name in names for entry in described["topic"][name].values()]
    if output.is_json:
        print_json({"configs": [_document(name, entry) for name, entry in entries]})
        return
    if not entries:
        print_note("All settings are as they are by default; --all shows them.")
        return
    columns = ["Topic", "Key", "Value", "Source", "Default", "Type"]
    print_table(columns, [_row(name, entry) for name, entry in entries])


@app.command("alter")
@with_option_groups
def alter_configs(
    root: Root,
    output: Output,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which.")] = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config",
            metavar="KEY=VALUE,...",
            help="What to set; a value with commas in brackets: KEY=[A,B]. Repeatable.",
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A file with a KEY=VALUE on each line.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="KEY,...", help="What goes back to its default. Repeatable."
        ),
    ] = None,
    entity_type: EntityTypeOption = EntityType.TOPICS,
    entity_name: EntityNameOption = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check everything and change nothing.")
    ] = False,
) -> None:
    """Change settings of topics.

    All that is asked for, or nothing; settings that are not named stay as they are.
    """
    names = _named(topics, entity_name)
    if not names:
        raise InvalidConfigurationError("which topic? Name it behind `configs alter`")
    pairs = [*_file_pairs(add_config_file), *_pairs(add_config or [])]
    added = parse_pairs("--add-config", pairs)
    deleted = [key.strip() for keys in delete_config or [] for key in keys.split(",")]
    if not added and not deleted:
        raise InvalidConfigurationError("what to alter? Give --add-config or --delete-config")
    if both := sorted(added.keys() & set(deleted)):
        raise InvalidConfigurationError(
            f"{', '.join(both)}: to be set and to be deleted at once; take one of the two",
            key=both[0],
        )
    changes: dict[str, object] = {key: _without_brackets(value) for key, value in added.items()}
    changes |= dict.fromkeys(deleted, (AlterConfigOp.DELETE, None))
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, changes) for name in names]
    root.admin().alter_configs(resources, validate_only=validate_only)
    text = f"{'Could alter' if validate_only else 'Altered'} {', '.join(names)}."
    document: dict[str, object] = {"topics": names, "set": sorted(added), "deleted": deleted}
    output.answer(text, document | {"validate_only": validate_only})


def _named(topics: list[str] | None, entity_names: list[str] | None) -> list[str]:
    return list(dict.fromkeys([*(topics or []), *(entity_names or [])]))


def _pairs(options: list[str]) -> list[str]:
    return [pair for text in options for pair in _COMMA_OUTSIDE_BRACKETS.split(text)]


def _file_pairs(path: Path | None) -> list[str]:
    if path is None:
        return []
    lines = (line.strip() for line in path.read_text("utf-8", "replace").splitlines())
    return [line for line in lines if line and line[0] not in "#!"]


def _without_brackets(value: str) -> str:
    text = value.strip()
    return text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text


def _document(topic: str, entry: ConfigEntry) -> dict[str, object]:
    return {
        "topic": topic,
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "default": entry.default,
        "is_default": entry.is_default,
        "is_sensitive": entry.is_sensitive,
        "is_read_only": entry.is_read_only,
        "type": entry.type,
        "documentation": entry.documentation,
    }


def _row(topic: str, entry: ConfigEntry) -> list[object]:
    default = "" if entry.default is None else entry.default
    return [topic, entry.name, entry.value, entry.source, default, entry.type]
