"""Every configuration key: its Kafka name, type, default, range and meaning, in one table.

The table is the set of models below: a field ``segment_bytes`` is the key ``segment.bytes`` in
files and Spark options, and the keyword argument ``segment_bytes`` in Python. Unknown keys are
refused with the nearest known name. ``docs/configuration.md`` is what `markdown` makes of the
table (``make docs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from spark_log.errors import (
    InvalidConfigurationError,
    UnsupportedCompressionTypeError,
    check_unicode,
    nearest,
)

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def split_list(value: object) -> object:
    """Return the parts of a text with commas, as a list key's value is given in files.

    For fields of type ``Annotated[tuple[…, ...], BeforeValidator(split_list)]``.
    """
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def offset_reset(value: str) -> timedelta | Literal["earliest", "latest", "none"]:
    """Return what a value of ``auto.offset.reset`` means: a word, or how long ago (KIP-1106).

    Raises:
        ValueError: it is none of them.
    """
    if value in ("earliest", "latest", "none"):
        return value  # type: ignore[return-value]
    word, _, text = value.partition(":")
    if word == "by_duration" and text.startswith("P"):
        duration = TypeAdapter(timedelta).validate_python(text)
        if duration >= timedelta(0):
            return duration
    raise ValueError("not a known reset policy")


def _checked_offset_reset(value: str) -> str:
    offset_reset(value)
    return value


class ConfigModel(BaseModel):
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
                value of the wrong type or out of range, naming what is allowed, or for a text that
                is not Unicode.
        """
        for key, value in values.items():
            if isinstance(key, str):
                check_unicode(f"a key of {cls.title.lower()} configs", key)
            if isinstance(value, str | list | tuple):
                for text in [value] if isinstance(value, str) else value:
                    if isinstance(text, str):
                        check_unicode(f"config {cls.key_name(key)!r}", text)
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise _as_config_error(cls, error) from None

    @classmethod
    def keys(cls) -> dict[str, ConfigKey]:
        """Return the table of this model's keys, by Kafka name."""
        return {key.name: key for key in _keys_of(cls)}

    @classmethod
    def key_name(cls, text: str) -> str:
        """Return the Kafka name of a key that may be given as a keyword argument."""
        return text.replace("_", ".")

    def dotted(self) -> dict[str, object]:
        """Return all values by their Kafka names."""
        return self.model_dump(by_alias=True)


class TopicConfig(ConfigModel):
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
    segment_ms: int = Field(
        default=604_800_000,
        ge=1,
        le=_LONG_MAX,
        description="How much time the records of one merged segment may span, so that "
        "retention by time can pass it. What is smaller than 1 MiB is merged all the same.",
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
    retention_ms: int = Field(
        default=604_800_000,
        ge=-1,
        le=_LONG_MAX,
        description="How long records are kept. The cleaner deletes a segment when its latest "
        "timestamp is longer ago than this. -1: for ever.",
    )
    retention_bytes: int = Field(
        default=-1,
        ge=-1,
        le=_LONG_MAX,
        description="How large a partition may grow: the cleaner deletes the oldest segments as "
        "long as what is left has this size at least. -1: without limit.",
    )
    merge_tail_segments: int = Field(
        default=128,
        ge=0,
        le=_INT_MAX,
        description="Once so many small segments were appended an appender merges them into one. "
        "All else is left to the cleaner. 0: appenders merge nothing. Not in Kafka.",
    )
    merge_compression_type: Literal["producer", "none", "lz4", "zstd"] = Field(
        default="producer",
        description="Compression of segments that the cleaner merges, where `compression.type` "
        "is `producer`: `producer` keeps what most of their bytes have. Not in Kafka.",
    )
    snapshot_interval_segments: int = Field(
        default=128,
        ge=1,
        le=_INT_MAX,
        description="After how many new segments an appender writes a snapshot: the state of "
        "producers and what is known of each segment, so that nobody has to open all of them. "
        "Not in Kafka, where a snapshot comes with every new segment.",
    )
    cleanup_policy: Annotated[
        tuple[Literal["delete", "compact"], ...], BeforeValidator(split_list)
    ] = Field(
        default=("delete",),
        min_length=1,
        description="What becomes of old records: `delete` by age and size, `compact` to the last "
        "one of each key, or both.",
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of bytes not compacted yet from which on a compaction is worth while.",
    )
    min_compaction_lag_ms: int = Field(
        default=0,
        ge=0,
        le=_LONG_MAX,
        description="For so long after its timestamp a record is not compacted.",
    )
    max_compaction_lag_ms: int = Field(
        default=_LONG_MAX,
        ge=1,
        le=_LONG_MAX,
        description="No later than so long after its timestamp a record may be compacted, whatever "
        "`min.cleanable.dirty.ratio` says.",
    )
    delete_retention_ms: int = Field(
        default=86_400_000,
        ge=0,
        le=_LONG_MAX,
        description="For so long the tombstones of a compacted topic stay, after the first "
        "compaction that met them: who reads the log from its start must reach them within it.",
    )
    file_delete_delay_ms: int = Field(
        default=60_000,
        ge=0,
        le=_LONG_MAX,
        description="How long a file that is no longer part of the log is kept for readers that "
        "still use it. Half of it is how long a writer may take between observing the log's end "
        "and having its append confirmed without looking again. After it was lowered wait for "
        "`metadata.max.age.ms` before the next cleaning: until then those who read rely on more.",
    )
    flush_on_append: bool = Field(
        default=True,
        description="Whether an append on a local file system is synced to disk (file and "
        "directory) before it is acknowledged. With `false` a power cut may lose any of the "
        "records that the operating system has not written by itself yet (on Linux those of the "
        "last 30 seconds or so), not only the newest ones: where it leaves a hole or half a "
        "segment, the log is reported as damaged. What is not an append is synced in any topic: "
        "merged and compacted segments, deleted records, snapshots, commits and metadata. A "
        "killed process loses nothing either way. Kafka's default is not to sync; object stores "
        "always do.",
    )


class ProducerConfig(ConfigModel):
    """Settings of whoever writes."""

    title: ClassVar[str] = "Producer"

    acks: Literal["all", "1", "0"] = Field(
        default="all",
        description="Whether a record is acknowledged when it is in the log. `0`: as soon as its "
        "append begins, without offset and without retries. With one root `1` and `all` are the "
        "same. `-1` is `all`.",
    )
    batch_size: int = Field(
        default=16_384,
        ge=0,
        le=_INT_MAX,
        description="Bytes of a partition's records that are sent without lingering for more. All "
        "that came in the meantime is appended with them. 0: each record is a batch of its own.",
    )
    buffer_memory: int = Field(
        default=33_554_432,
        ge=0,
        le=_LONG_MAX,
        description="Bytes of records that may wait to be acknowledged; then `send` blocks.",
    )
    client_id: str = Field(
        default="",
        description="A name for the producer in logs and metrics, and whose quota counts "
        "(docs/quotas.md). Empty: one is made up.",
    )
    compression_type: Literal["none", "lz4", "zstd"] = Field(
        default="none",
        description="Compression that the writer uses where the topic says `producer`.",
    )
    delivery_timeout_ms: int = Field(
        default=120_000,
        ge=0,
        le=_INT_MAX,
        description="Within this time after `send` a record is acknowledged or has failed, retries "
        "included. Also how long the end of the process waits for records that were not flushed.",
    )
    enable_idempotence: bool = Field(
        default=True,
        description="Whether a retry can never double or reorder records. Needs `acks=all` and "
        "`retries` above 0: given explicitly with others it is refused, else it is switched off.",
    )
    flush_on_exit: bool = Field(
        default=True,
        description="Whether the end of the process sends what was not flushed: a regular one, and "
        "SIGTERM where nothing else handles it. Not in Kafka.",
    )
    linger_ms: int = Field(
        default=5,
        ge=0,
        le=_LONG_MAX,
        description="How long a record waits for others to be appended with it (KIP-1030: 5).",
    )
    max_block_ms: int = Field(
        default=60_000,
        ge=0,
        le=_LONG_MAX,
        description="How long `send` and `partitions_for` may block: for room in the buffer, or "
        "for a storage that does not answer.",
    )
    max_in_flight_requests_per_connection: int = Field(
        default=5,
        ge=1,
        le=_INT_MAX,
        description="How many appends may be under way at once. Of one partition it is always one, "
        "so that order is kept whatever this is.",
    )
    max_request_size: int = Field(
        default=1_048_576,
        ge=0,
        le=_INT_MAX,
        description="Largest record: key, value and headers, before compression. The topic's "
        "`max.message.bytes` counts as well.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=0,
        le=_LONG_MAX,
        description="How long the partitions of a topic are taken as known before they are looked "
        "up again. That a topic was deleted is seen at once.",
    )
    partitioner_ignore_keys: bool = Field(
        default=False,
        description="Whether the default partitioner treats all records as if they had no key.",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=_INT_MAX,
        description="How long one request to an object store waits for its answer; a put, which "
        "carries data, twice as long. A put without an answer may have taken effect: it is looked "
        "for. Opening a producer takes no longer either.",
    )
    retries: int = Field(
        default=_INT_MAX,
        ge=0,
        le=_INT_MAX,
        description="How often an append is tried again. `delivery.timeout.ms` bounds the time.",
    )
    retry_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=_LONG_MAX,
        description="Longest pause between two tries.",
    )
    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=_LONG_MAX,
        description="First pause between two tries; it doubles with each, give or take a fifth "
        "(KIP-580).",
    )

    @field_validator("acks", mode="before")
    @classmethod
    def _acks_text(cls, value: object) -> object:
        return {0: "0", 1: "1", -1: "all", "-1": "all"}.get(value, value)

    @field_validator("compression_type", mode="before")
    @classmethod
    def _no_compression(cls, value: object) -> object:
        return "none" if value is None else value


class ConsumerConfig(ConfigModel):
    """Settings of whoever reads."""

    title: ClassVar[str] = "Consumer"

    client_id: str = Field(
        default="",
        description="A name for the consumer, in its log lines and its thread's name, and whose "
        "quota counts (docs/quotas.md).",
    )
    auto_offset_reset: Annotated[str, AfterValidator(_checked_offset_reset)] = Field(
        default="latest",
        description="Where to begin where nothing is committed, or what was is not there any "
        "more; `none` is an error. `by_duration:` and an ISO 8601 duration: at the first record "
        "that is no older (KIP-1106).",
        examples=["earliest", "latest", "none", "by_duration:PT1H"],
    )
    enable_auto_commit: bool = Field(
        default=True,
        description="Whether what was consumed is committed in the background, by a consumer with "
        "a group id.",
    )
    auto_commit_interval_ms: int = Field(
        default=5000,
        ge=0,
        le=_INT_MAX,
        description="How often it is, at most; nothing is committed twice.",
    )
    fetch_min_bytes: int = Field(
        default=1,
        ge=0,
        le=_INT_MAX,
        description="So much has to be there before records are handed out, unless they wait "
        "longer than `fetch.max.wait.ms`.",
    )
    fetch_max_wait_ms: int = Field(
        default=500,
        ge=0,
        le=_INT_MAX,
        description="How long records wait, at most, until there are `fetch.min.bytes`.",
    )
    fetch_max_bytes: int = Field(
        default=52_428_800,
        ge=0,
        le=_INT_MAX,
        description="How much is fetched ahead of all partitions together, as it is in memory. One "
        "record batch may exceed it.",
    )
    max_partition_fetch_bytes: int = Field(
        default=1_048_576,
        ge=0,
        le=_INT_MAX,
        description="How much is fetched ahead of one partition; likewise.",
    )
    max_poll_records: int = Field(
        default=500,
        ge=1,
        le=_INT_MAX,
        description="How many records one `poll` returns at most. `poll_table` is bounded by "
        "bytes.",
    )
    consumer_timeout_ms: int = Field(
        default=-1,
        ge=-1,
        le=_INT_MAX,
        description="Iterating ends when no record came for so long; -1: never. kafka-python's.",
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted",
        description="Whether records of open and aborted transactions are seen. There are no "
        "transactions yet: both see all records.",
    )
    exclude_internal_topics: bool = Field(
        default=True,
        description="Whether a subscribed pattern leaves out internal topics.",
    )
    check_crcs: bool = Field(
        default=True,
        description="Whether the checksum of every record batch is checked when it is read.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=0,
        le=_INT_MAX,
        description="How often new topics and partitions are looked for, at least. On a local root "
        "they are seen at once.",
    )
    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=_INT_MAX,
        description="How long to wait before reading again from a storage that failed.",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=_INT_MAX,
        description="How long one request to an object store waits for its answer; a put, which "
        "carries data, twice as long. A put without an answer may have taken effect: it is looked "
        "for.",
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        le=_INT_MAX,
        description="How long a call may wait for an object store that does not answer, where it "
        "is given no timeout of its own. Then it raises a retriable error.",
    )
    group_instance_id: str | None = Field(
        default=None,
        description="Makes the consumer a static member of its group (KIP-345): a process that "
        "comes back with the same one within `session.timeout.ms` has its partitions again, and "
        "the others notice nothing.",
    )
    client_rack: str = Field(
        default="",
        description="Where the consumer runs: assignors prefer replicas in the same rack "
        "(KIP-881). As long as a partition has one replica it makes no difference.",
    )
    session_timeout_ms: int = Field(
        default=45_000,
        ge=1,
        le=_INT_MAX,
        description="How long a member of a group may be silent until the others share its "
        "partitions.",
    )
    heartbeat_interval_ms: int = Field(
        default=3000,
        ge=1,
        le=_INT_MAX,
        description="How often a member of a group gives a sign of life; at most a third of "
        "`session.timeout.ms` is good.",
    )
    max_poll_interval_ms: int = Field(
        default=300_000,
        ge=1,
        le=_INT_MAX,
        description="A member of a group that does not poll for so long leaves it.",
    )
    partition_assignment_strategy: Annotated[
        tuple[Literal["range", "roundrobin", "sticky", "cooperative-sticky"], ...],
        BeforeValidator(split_list),
    ] = Field(
        default=("range", "cooperative-sticky"),
        min_length=1,
        description="How a group shares partitions, what is liked best first; all members need one "
        "in common.",
    )


class AdminConfig(ConfigModel):
    """Settings of an `Admin`."""

    title: ClassVar[str] = "Admin"

    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=_INT_MAX,
        description="How long one request to an object store waits for its answer; a put, which "
        "carries data, twice as long. A put without an answer may have taken effect: it is looked "
        "for.",
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        le=_INT_MAX,
        description="How long a call may wait for an object store that does not answer, where it "
        "is given no timeout of its own. Then it raises a retriable error.",
    )


DEFAULT_MAX_CLOCK_SKEW_MS: Final = 600_000
"""Ten minutes: more than synchronised machines ever differ, less than any retention."""


class ClusterConfig(ConfigModel):
    """Settings of the whole cluster, kept in the metadata log.

    `spark-log configs alter --entity-type brokers --entity-default` sets them, as in Kafka. Limits
    of groups apply to members that join from then on.
    """

    title: ClassVar[str] = "Cluster"

    group_max_size: int = Field(
        default=_INT_MAX,
        ge=1,
        le=_INT_MAX,
        description="How many members a group may have.",
    )
    group_min_session_timeout_ms: int = Field(
        default=6000,
        ge=0,
        le=_INT_MAX,
        description="The least `session.timeout.ms` that a member may have.",
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000,
        ge=0,
        le=_INT_MAX,
        description="The greatest `session.timeout.ms` that a member may have.",
    )
    max_clock_skew_ms: int = Field(
        default=DEFAULT_MAX_CLOCK_SKEW_MS,
        ge=0,
        le=_LONG_MAX,
        description="How far the clock of a process may be from the storage's clock. A process "
        "whose clock is further away deletes and expires nothing, and reports the difference. "
        "Not in Kafka.",
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """See `ConfigModel.parse`."""
        config = super().parse(values)
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if least > most:
            raise InvalidConfigurationError(
                f"group.min.session.timeout.ms is {least}, more than group.max.session.timeout.ms, "
                f"{most}: nobody could join a group; set both",
                key="group.min.session.timeout.ms",
            )
        return config


class ClientQuotaConfig(ConfigModel):
    """How much one client may produce and consume: kept in the metadata log (KIP-13).

    `spark-log configs alter --entity-type clients --entity-name ID` sets it for a client id,
    `--entity-default` for all that have none of their own; see docs/quotas.md. Kafka writes these
    keys with underscores.
    """

    title: ClassVar[str] = "Client quota"

    model_config = ConfigDict(alias_generator=lambda field: field)

    producer_byte_rate: int = Field(
        default=_LONG_MAX,
        ge=1,
        le=_LONG_MAX,
        description="How many bytes a second a producer appends at most, as they are stored.",
    )
    consumer_byte_rate: int = Field(
        default=_LONG_MAX,
        ge=1,
        le=_LONG_MAX,
        description="How many bytes a second a consumer fetches at most, as they are in memory.",
    )

    @classmethod
    def key_name(cls, text: str) -> str:
        """See `ConfigModel.key_name`."""
        return text


class ToolConfig(ConfigModel):
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


MODELS: tuple[type[ConfigModel], ...] = (
    TopicConfig,
    ProducerConfig,
    ConsumerConfig,
    AdminConfig,
    ClusterConfig,
    ClientQuotaConfig,
    ToolConfig,
)


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
        InvalidConfigurationError: for a line without ``=``, and as `ConfigModel.parse`.
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
    """Return a config value as Kafka writes it: ``true`` and ``false`` in lower case, ``a,b``."""
    if isinstance(value, tuple):
        return ",".join(map(to_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def markdown() -> str:
    """Return the whole table as the Markdown of ``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        "Generated by `make docs` from `spark_log/config/config.py`; do not edit.",
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


def _keys_of(model: type[ConfigModel]) -> Iterator[ConfigKey]:
    for field_name, field in model.model_fields.items():
        yield ConfigKey(
            name=field.alias or field_name,
            type=_type_name(field),
            default="" if field.default is None else f"`{to_text(field.default)}`",
            allowed=_allowed(field),
            doc=field.description or "",
        )


def _type_name(field: FieldInfo) -> str:
    names = {bool: "boolean", int: "int", float: "double"}
    annotation: Any = field.annotation
    return "list" if get_origin(annotation) is tuple else names.get(annotation, "string")


def _allowed(field: FieldInfo) -> str:
    annotation = field.annotation
    of_one = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    choices = [choice for choice in get_args(of_one) if isinstance(choice, str)]
    choices = choices or field.examples or []
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation is bool:
        return "`true`, `false`"
    bounds = {type(item).__name__: item for item in field.metadata}
    parts = [f"≥ {bounds['Ge'].ge}"] if "Ge" in bounds else []
    if "Le" in bounds and bounds["Le"].le not in (_INT_MAX, _LONG_MAX):
        parts.append(f"≤ {bounds['Le'].le}")
    return ", ".join(parts)


_NO_BROKERS: Final = (
    "there are no brokers here: the log is a directory on storage. Give root, its path or URL, "
    "such as root='/data/log' or root='s3://bucket/log'"
)
_NO_CONNECTIONS: Final = (
    "there are no connections to brokers: who may read and write the storage may read and write "
    "the log. Set the storage's permissions, and give credentials as storage_options={…}"
)
_NO_TRANSACTIONS: Final = (
    "there are no transactions yet. By default a producer is idempotent: each record that it "
    "acknowledged is in the log once. Leave it out"
)
_MEANINGLESS: Final = "it tells a client how to talk to brokers, and there are none. Leave it out"
_INSTEAD: Final[Mapping[str, str]] = {
    "bootstrap.servers": _NO_BROKERS,
    "metadata.broker.list": _NO_BROKERS,
    "transactional.id": _NO_TRANSACTIONS,
    "transaction.timeout.ms": _NO_TRANSACTIONS,
    "group.id": "give group_id='…' to Consumer by this very name; a producer has no group",
    "key.serializer": "give key_serializer= to Producer, a function that makes bytes",
    "value.serializer": "give value_serializer= to Producer, a function that makes bytes",
    "key.deserializer": "give key_deserializer= to Consumer, a function of a key's bytes",
    "value.deserializer": "give value_deserializer= to Consumer, a function of a value's bytes",
    "message.send.max.retries": "its name here is retries",
    "queue.buffering.max.ms": "its name here is linger_ms",
    "message.max.bytes": "its name here is max_request_size",
    "compression.codec": "its name here is compression_type",
    "queue.buffering.max.kbytes": "its name here is buffer_memory, in bytes",
}
"""What to do instead of settings that kafka-python's and librdkafka's clients have."""

_OF_CONNECTIONS: Final = (
    *("api.version", "broker.", "connections.max.idle", "debug", "enable.partition.eof"),
    *("kafka.client", "log.connection", "metric.reporters", "metrics.", "receive.buffer"),
    *("reconnect.backoff", "selector", "send.buffer", "socket.", "socks5.", "statistics."),
)


def _foreign_advice(name: str) -> str | None:
    """Return what to do instead of a setting of another client; None where it is none."""
    key = name.lower().replace("_", ".")
    if key.startswith(("ssl.", "sasl.", "security.", "enable.ssl.")):
        return _NO_CONNECTIONS
    return _INSTEAD.get(key) or (_MEANINGLESS if key.startswith(_OF_CONNECTIONS) else None)


def unknown_key_error(model: type[ConfigModel], name: str) -> InvalidConfigurationError:
    """Return the error for a key that a model does not have; it names the nearest one.

    Or says what to do instead of a setting that other clients of Kafka have.
    """
    keys = model.keys()
    if model in (ProducerConfig, ConsumerConfig) and (advice := _foreign_advice(name)):
        return InvalidConfigurationError(
            f"{model.title.lower()} config {name!r} does not exist: {advice}", key=name
        )
    close = nearest(name, keys)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(keys)}"
    return InvalidConfigurationError(
        f"unknown {model.title.lower()} config {name!r}; {hint}",
        key=name,
        nearest=close[0] if close else None,
    )


def _as_config_error(model: type[ConfigModel], error: ValidationError) -> InvalidConfigurationError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    keys = model.keys()
    if first["type"] in ("extra_forbidden", "invalid_key"):
        return unknown_key_error(model, name)
    key = keys[model.key_name(name)]
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
