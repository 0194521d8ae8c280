"""Every configuration key: its Kafka name, type, default, range and meaning, in one table.

The table is the set of models below: a field ``segment_bytes`` is the key ``segment.bytes`` in
files and Spark options, and the keyword argument ``segment_bytes`` in Python. Unknown keys are
refused with the nearest known name. ``docs/configuration.md`` is what `markdown` makes of the
table (``make docs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from spark_log.errors import (
    InvalidConfigurationError,
    UnsupportedCompressionTypeError,
    nearest,
)

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class _ConfigModel(BaseModel):
    """What all config models share: Kafka's dotted names, frozen, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda field: field.replace("_", "."),
    )

    title: ClassVar[str]

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Check ``values`` (dotted or snake_case keys, text or typed values) and freeze them.

        Raises:
            InvalidConfigurationError: for an unknown key, naming the nearest known one, or for a
                value of the wrong type or out of range, naming what is allowed.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise _as_config_error(cls, error) from None

    @classmethod
    def keys(cls) -> dict[str, ConfigKey]:
        """Return the table of this model's keys, by Kafka name."""
        return {key.name: key for key in _keys_of(cls)}

    def dotted(self) -> dict[str, object]:
        """Return all values by their Kafka names."""
        return self.model_dump(by_alias=True)


class TopicConfig(_ConfigModel):
    """Settings of one topic, kept in the metadata log."""

    title: ClassVar[str] = "Topic"

    compression_type: Literal["producer", "none", "lz4", "zstd"] = Field(
        default="producer",
        description="Compression of segments: Arrow's own buffer compression. "
        "`producer` keeps what the writer chose.",
    )
    segment_bytes: int = Field(
        default=1_073_741_824,
        ge=1_048_576,
        le=_INT_MAX,
        description="Largest size of a segment file in bytes; a writer that streams more starts "
        "another one. At least 1 MiB (KIP-1030).",
    )
    index_interval_bytes: int = Field(
        default=4096,
        ge=0,
        le=_INT_MAX,
        description="How many bytes of log lie between two entries of the offset and time index.",
    )
    max_message_bytes: int = Field(
        default=1_048_588,
        ge=0,
        le=_INT_MAX,
        description="Largest record that is taken: key, value and headers together, before "
        "compression. In Kafka it bounds a batch; here batches are Arrow's, and not bounded.",
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = Field(
        default="CreateTime",
        description="Whether a record keeps the timestamp that its producer gave it, or gets the "
        "time at which it was appended, by the appender's clock.",
    )
    message_timestamp_before_max_ms: int = Field(
        default=_LONG_MAX,
        ge=0,
        le=_LONG_MAX,
        description="How far a record's timestamp may lie before the time of its append. Does not "
        "count with `LogAppendTime`.",
    )
    message_timestamp_after_max_ms: int = Field(
        default=3_600_000,
        ge=0,
        le=_LONG_MAX,
        description="How far a record's timestamp may lie after the time of its append (KIP-937, "
        "KIP-1030). Does not count with `LogAppendTime`.",
    )
    producer_id_expiration_ms: int = Field(
        default=86_400_000,
        ge=1,
        le=_INT_MAX,
        description="How long after its last append an idempotent producer is remembered: a "
        "repeat that comes later is not recognised. In Kafka a setting of the broker.",
    )
    snapshot_interval_segments: int = Field(
        default=128,
        ge=1,
        le=_INT_MAX,
        description="After how many new segments an appender writes a snapshot: the state of "
        "producers and what is known of each segment, so that nobody has to open all of them. "
        "Not in Kafka, where a snapshot comes with every new segment.",
    )
    file_delete_delay_ms: int = Field(
        default=60_000,
        ge=0,
        le=_LONG_MAX,
        description="How long a file that is no longer part of the log is kept for readers that "
        "still use it. Half of it is how long a writer may take between observing the log's end "
        "and having its append confirmed without looking again.",
    )
    flush_on_append: bool = Field(
        default=True,
        description="Whether an append on a local file system is synced to disk (file and "
        "directory) before it is acknowledged. Kafka's default is not to; object stores always do.",
    )


class ProducerConfig(_ConfigModel):
    """Settings of whoever writes."""

    title: ClassVar[str] = "Producer"

    compression_type: Literal["none", "lz4", "zstd"] = Field(
        default="none",
        description="Compression that the writer uses where the topic says `producer`.",
    )


class ConsumerConfig(_ConfigModel):
    """Settings of whoever reads."""

    title: ClassVar[str] = "Consumer"

    check_crcs: bool = Field(
        default=True,
        description="Whether the checksum of every record batch is checked when it is read.",
    )


class ToolConfig(_ConfigModel):
    """Settings of the command line, read from ``spark-log.properties``."""

    title: ClassVar[str] = "Command line"

    root: str | None = Field(
        default=None,
        description="The cluster root: a path or a URL. `--root` and the environment variable "
        "`SPARK_LOG_ROOT` go before it.",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=_INT_MAX,
        description="How many partitions a topic gets when none are named.",
    )


MODELS: tuple[type[_ConfigModel], ...] = (TopicConfig, ProducerConfig, ConsumerConfig, ToolConfig)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of the table."""

    name: str
    type: str
    default: str
    allowed: str
    doc: str


def load_properties(path: str | Path) -> tuple[ToolConfig, dict[str, str]]:
    """Read a Java-style properties file: ``key=value`` lines, ``#`` or ``!`` comments.

    Returns:
        The command line's settings, and the storage options: keys that begin with ``storage.``
        lose that prefix and go to the file system as they are.

    Raises:
        InvalidConfigurationError: for a line without ``=``, and as `_ConfigModel.parse`.
    """
    settings: dict[str, object] = {}
    storage_options: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            shown = "something else" if key.startswith("storage.") else repr(text)
            raise InvalidConfigurationError(
                f"{path}, line {number}: expected key=value, got {shown}", key=key.split()[0]
            )
        if key.startswith("storage."):
            storage_options[key.removeprefix("storage.")] = value
        else:
            settings[key] = value
    return ToolConfig.parse(settings), storage_options


def to_text(value: object) -> str:
    """Return a config value as Kafka writes it: ``true`` and ``false`` in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def markdown() -> str:
    """Return the whole table as the Markdown of ``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        "Generated by `make docs` from `spark_log/config.py`; do not edit.",
        "",
        "Keys are Kafka's: dotted in files and in Spark options, `snake_case` keyword arguments",
        "in Python. Unknown keys are an error that names the nearest known one. In",
        "`spark-log.properties` and in Spark options, keys that begin with `storage.` lose that",
        "prefix and go to the file system.",
    ]
    for model in MODELS:
        lines += ["", f"## {model.title}", "", (model.__doc__ or "").strip(), ""]
        lines += ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        lines += [
            f"| `{key.name}` | {key.type} | {key.default} | {key.allowed} | {key.doc} |"
            for key in _keys_of(model)
        ]
    return "\n".join(lines) + "\n"


def _keys_of(model: type[_ConfigModel]) -> Iterator[ConfigKey]:
    for field_name, field in model.model_fields.items():
        yield ConfigKey(
            name=field.alias or field_name,
            type=_type_name(field),
            default="" if field.default is None else f"`{to_text(field.default)}`",
            allowed=_allowed(field),
            doc=field.description or "",
        )


def _type_name(field: FieldInfo) -> str:
    names = {bool: "boolean", int: "int"}
    annotation: Any = field.annotation
    return names.get(annotation, "string")


def _allowed(field: FieldInfo) -> str:
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation is bool:
        return "`true`, `false`"
    bounds = {type(item).__name__: item for item in field.metadata}
    parts = [f"≥ {bounds['Ge'].ge}"] if "Ge" in bounds else []
    if "Le" in bounds and bounds["Le"].le not in (_INT_MAX, _LONG_MAX):
        parts.append(f"≤ {bounds['Le'].le}")
    return ", ".join(parts)


def _as_config_error(
    model: type[_ConfigModel], error: ValidationError
) -> InvalidConfigurationError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    keys = model.keys()
    if first["type"] in ("extra_forbidden", "invalid_key"):
        close = nearest(name, keys)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(keys)}"
        return InvalidConfigurationError(
            f"unknown {model.title.lower()} config {name!r}; {hint}",
            key=name,
            nearest=close[0] if close else None,
        )
    key = keys[name.replace("_", ".")]
    if key.name == "compression.type" and first["input"] in ("gzip", "snappy"):
        return UnsupportedCompressionTypeError(
            f"compression.type {first['input']!r} does not exist in Arrow's file format; "
            f"use one of none, lz4, zstd",
            key=key.name,
        )
    wanted = f"{key.type} {key.allowed}".replace("`", "").strip()
    return InvalidConfigurationError(
        f"config {key.name!r} is {first['input']!r}, expected {wanted}", key=key.name
    )
