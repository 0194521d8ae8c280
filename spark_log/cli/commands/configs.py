"""``spark-log configs``: describe and change settings of topics, clients, groups, the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spark_log.admin import Admin
from spark_log.cli.format import Output, print_json, print_note, print_table
from spark_log.cli.options import Root, Topics, complete_topics, parse_pairs, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata import DEFAULT_CLIENT
from spark_log.types import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType

app = typer.Typer(rich_markup_mode=None)

_DEFAULT = "<default>"
"""Kafka's name of the settings for all brokers, or for all clients."""


class EntityType(StrEnum):
    """Values of ``--entity-type``: the types of kafka-configs that have settings here."""

    TOPICS = "topics"
    BROKERS = "brokers"
    CLIENTS = "clients"
    GROUPS = "groups"


EntityTypeOption = Annotated[
    EntityType,
    typer.Option(
        "--entity-type",
        help="topics; brokers: settings of the whole cluster; clients: quotas; groups: timeouts of "
        "consumer groups.",
    ),
]
EntityNameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-name",
        metavar="NAME",
        help="A topic, a client id or a group. Repeatable.",
        autocompletion=complete_topics,
    ),
]
EntityDefaultOption = Annotated[
    bool,
    typer.Option(
        "--entity-default",
        help="With brokers: the whole cluster. With clients: clients without a quota.",
    ),
]


@app.command("describe")
@with_examples(
    "spark-log configs describe flights --all",
    "spark-log configs describe --entity-type clients",
)
@with_option_groups
def describe_configs(
    topics: Topics,
    root: Root,
    output: Output,
    every: Annotated[
        bool, typer.Option("--all", help="Show settings with their default value, too.")
    ] = False,
    entity_type: EntityTypeOption = EntityType.TOPICS,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
) -> None:
    """Describe settings and their sources.

    Shows settings of topics, of clients, of groups or of the whole cluster. Without --all only
    settings that were changed are shown. With --json each setting has its description, too.
    """
    admin = root.admin()
    kind, names = _resources(entity_type, entity_default, topics.given, entity_name)
    names = names or _all_names(kind, admin)
    resources = [ConfigResource(kind, name) for name in names]
    described = admin.describe_configs(resources, config_filter="all" if every else "modified")
    entries = [
        (name, entry)
        for of_kind in described.values()
        for name in names
        for entry in of_kind[name].values()
    ]
    if output.is_json:
        key = kind.name.lower()
        print_json({"configs": [_document(key, name, entry) for name, entry in entries]})
        return
    if not entries:
        print_note("All settings have their default values; --all shows them.")
        return
    columns = [kind.name.capitalize(), "Key", "Value", "Source", "Default", "Type"]
    print_table(columns, [_row(name, entry) for name, entry in entries])


@app.command("alter")
@with_examples(
    "spark-log configs alter flights --add-config retention.ms=86400000",
    "spark-log configs alter flights --delete-config retention.ms",
)
@with_option_groups
def alter_configs(
    topics: Topics,
    root: Root,
    output: Output,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config",
            metavar="KEY=VALUE,...",
            help="Settings. Write a value with commas in brackets: KEY=[A,B]. Repeatable.",
        ),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option(
            "--add-config-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File with one KEY=VALUE on each line.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="KEY,...",
            help="Settings that get their default value again. Repeatable.",
        ),
    ] = None,
    entity_type: EntityTypeOption = EntityType.TOPICS,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check everything and change nothing.")
    ] = False,
) -> None:
    """Change settings.

    Changes settings of topics, of clients, of groups or of the whole cluster. Either all changes
    are made, or none. Settings that are not named stay unchanged.
    """
    kind, names = _resources(entity_type, entity_default, topics.given, entity_name)
    if not names:
        if kind is ConfigResourceType.CLIENT:
            raise InvalidConfigurationError(
                "which client? Give --entity-name with a client id, or --entity-default"
            )
        if kind is ConfigResourceType.GROUP:
            raise InvalidConfigurationError("which group? Give --entity-name with its id")
        raise InvalidConfigurationError("which topics? Give TOPIC or --topic")
    pairs = [*_file_pairs(add_config_file), *_pairs(add_config or [])]
    added = parse_pairs("--add-config", pairs)
    deleted = [key.strip() for keys in delete_config or [] for key in keys.split(",")]
    if not added and not deleted:
        raise InvalidConfigurationError("which settings? Give --add-config or --delete-config")
    if both := sorted(added.keys() & set(deleted)):
        raise InvalidConfigurationError(
            f"{', '.join(both)}: given to both --add-config and --delete-config",
            key=both[0],
        )
    changes: dict[str, object] = {key: _without_brackets(value) for key, value in added.items()}
    changes |= dict.fromkeys(deleted, (AlterConfigOp.DELETE, None))
    resources = [ConfigResource(kind, name, changes) for name in names]
    root.admin().alter_configs(resources, validate_only=validate_only)
    shown = ", ".join(name or _DEFAULT for name in names)
    text = f"Could alter {shown}; nothing was changed." if validate_only else f"Altered {shown}."
    document: dict[str, object] = {entity_type: names, "set": sorted(added), "deleted": deleted}
    output.answer(text, document | {"validate_only": validate_only})


def _resources(
    entity_type: EntityType,
    entity_default: bool,
    topics: Sequence[str],
    entity_names: list[str] | None,
) -> tuple[ConfigResourceType, list[str]]:
    """Return the type and the names of the resources; no names if none were given."""
    names = list(dict.fromkeys([*topics, *(entity_names or [])]))
    if entity_type is EntityType.BROKERS:
        return ConfigResourceType.BROKER, names or [""]
    if entity_type is EntityType.CLIENTS:
        if "" in names:
            raise InvalidConfigurationError(
                "--entity-name: the client id is empty; give a client id, or --entity-default for "
                "all clients without a quota"
            )
        if names and entity_default:
            raise InvalidConfigurationError(
                "--entity-name or --entity-default: give one of the two"
            )
        return ConfigResourceType.CLIENT, [DEFAULT_CLIENT] if entity_default else names
    if entity_default:
        raise InvalidConfigurationError(
            f"--entity-default: {entity_type} have no common settings; give it with --entity-type "
            f"brokers or clients, or name {entity_type}"
        )
    if entity_type is EntityType.GROUPS:
        return ConfigResourceType.GROUP, names
    return ConfigResourceType.TOPIC, names


def _all_names(kind: ConfigResourceType, admin: Admin) -> list[str]:
    if kind is ConfigResourceType.TOPIC:
        return admin.list_topics()
    if kind is ConfigResourceType.GROUP:
        return admin.list_config_resources([kind])["group"]
    return [DEFAULT_CLIENT if name is None else name for name in admin.describe_client_quotas()]


def _pairs(options: list[str]) -> list[str]:
    pairs = [pair for text in options for pair in _split(text)]
    for pair in pairs[1:]:
        if "=" not in pair:
            raise InvalidConfigurationError(
                f"--add-config takes KEY=VALUE,KEY=VALUE, got {pair!r}; write a value with commas "
                "in brackets: KEY=[A,B]"
            )
    return pairs


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets, which Kafka's lists and JSON have."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _file_pairs(path: Path | None) -> list[str]:
    if path is None:
        return []
    lines = (line.strip() for line in path.read_text("utf-8", "replace").splitlines())
    return [line for line in lines if line and line[0] not in "#!"]


def _without_brackets(value: str) -> str:
    text = value.strip()
    return text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text


def _document(kind: str, name: str, entry: ConfigEntry) -> dict[str, object]:
    return {
        kind: name,
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


def _row(name: str, entry: ConfigEntry) -> list[object]:
    default = "" if entry.default is None else entry.default
    return [name or _DEFAULT, entry.name, entry.value, entry.source, default, entry.type]
