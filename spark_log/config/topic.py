"""`TopicConfig`: the settings of a topic."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from spark_log.config.compression import CODECS
from spark_log.config.defaults import DEFAULT_FILE_DELETE_DELAY_MS
from spark_log.config.foreign_keys import TOPIC_KEYS, ForeignKeys
from spark_log.config.model import (
    INT_MAX,
    LONG_MAX,
    NonNegativeInt,
    NonNegativeLong,
    PositiveInt,
    PositiveLong,
    Synonyms,
    split_list,
)
from spark_log.config.replication import ReplicationConfig


class TopicConfig(ReplicationConfig):
    """Settings of one topic, kept in the metadata log."""

    title: ClassVar[str] = "Topic"
    foreign: ClassVar[ForeignKeys] = TOPIC_KEYS

    compression_type: Annotated[
        Literal["producer", "none", "lz4", "zstd"], Synonyms({"uncompressed": "none"}), CODECS
    ] = Field(
        default="producer",
        description="Compression of segment files, as Arrow's buffer compression. `producer` "
        "keeps the compression that the writer chose. `uncompressed` is another name of `none`. In "
        "place of `gzip` the topic has `zstd`, and in place of `snappy` it has `lz4`, with a "
        "warning: Arrow files support no other codecs.",
    )
    segment_bytes: int = Field(
        default=1_073_741_824,
        ge=1_048_576,
        le=INT_MAX,
        description="Maximum size of a segment file in bytes. A writer that streams more data "
        "starts another segment. The minimum is 1 MiB (KIP-1030).",
    )
    segment_ms: PositiveLong = Field(
        default=604_800_000,
        description="Maximum time span of the records in a merged segment, so that retention by "
        "time can delete the segment as a whole. Segments smaller than 1 MiB are merged even if "
        "the result spans more time, and so are all if `retention.ms` is -1.",
    )
    index_interval_bytes: NonNegativeInt = Field(
        default=4096,
        description="Number of log bytes between two entries of the offset index and of the time "
        "index.",
    )
    max_message_bytes: NonNegativeInt = Field(
        default=1_048_588,
        description="Maximum size of a record in bytes before compression: key, value and headers "
        "together. In Kafka this key limits a record batch. Here a record batch has no limit.",
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = Field(
        default="CreateTime",
        description="`CreateTime` keeps the timestamp that the producer set. `LogAppendTime` "
        "replaces it with the time of the append, by the appender's clock.",
    )
    message_timestamp_before_max_ms: NonNegativeLong = Field(
        default=LONG_MAX,
        description="Maximum time by which a record's timestamp may be earlier than its append. "
        "Ignored if `message.timestamp.type` is `LogAppendTime`.",
    )
    message_timestamp_after_max_ms: NonNegativeLong = Field(
        default=3_600_000,
        description="Maximum time by which a record's timestamp may be later than its append "
        "(KIP-937, KIP-1030). Ignored if `message.timestamp.type` is `LogAppendTime`.",
    )
    producer_id_expiration_ms: PositiveInt = Field(
        default=86_400_000,
        description="Time for which the state of an idempotent producer is kept after its last "
        "append. A retry that arrives later is not recognised as a duplicate. In Kafka this is a "
        "setting of the broker.",
    )
    retention_ms: int = Field(
        default=604_800_000,
        ge=-1,
        le=LONG_MAX,
        description="Time for which records are kept. The cleaner deletes a segment when its "
        "largest timestamp is older than this. -1: no limit.",
    )
    retention_bytes: int = Field(
        default=-1,
        ge=-1,
        le=LONG_MAX,
        description="Size in bytes above which the cleaner shrinks a partition. It deletes the "
        "oldest segment as long as the remaining segments have at least this size. -1: no limit.",
    )
    merge_tail_segments: NonNegativeInt = Field(
        default=128,
        description="Number of small segments at the end of the log after which an appender "
        "merges them into one. Depending on the partition's number it is up to an eighth more, so "
        "that partitions that are written together are not all merged at once. The cleaner does "
        "all other merging. 0: appenders merge nothing. Not in Kafka.",
    )
    merge_compression_type: Literal["producer", "none", "lz4", "zstd"] = Field(
        default="producer",
        description="Compression of segments that the cleaner merges, if `compression.type` is "
        "`producer`. `producer` keeps the compression that most of their bytes have. Not in Kafka.",
    )
    snapshot_interval_segments: PositiveInt = Field(
        default=128,
        description="Number of new segments after which an appender writes a snapshot. A merged "
        "segment counts as one. A snapshot holds the state of producers and the "
        "properties of each segment, so that a process does not have to open all segments. Not in "
        "Kafka, where a broker writes a snapshot with every new segment.",
    )
    cleanup_policy: Annotated[
        tuple[Literal["delete", "compact"], ...], BeforeValidator(split_list)
    ] = Field(
        default=("delete",),
        description="How the cleaner removes old records. `delete` removes records by age and "
        "size. `compact` keeps the last record of each key. Both can be set; if the list is empty, "
        "all records are kept.",
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Minimum share of bytes that are not compacted yet, from which on the cleaner "
        "compacts a partition.",
    )
    min_compaction_lag_ms: NonNegativeLong = Field(
        default=0,
        description="Minimum time, counted from its timestamp, for which a record is not "
        "compacted.",
    )
    max_compaction_lag_ms: PositiveLong = Field(
        default=LONG_MAX,
        description="Maximum time, counted from its timestamp, for which a record can stay "
        "ineligible for compaction. After it the partition is compacted even if "
        "`min.cleanable.dirty.ratio` is not reached.",
    )
    delete_retention_ms: NonNegativeLong = Field(
        default=86_400_000,
        description="Time for which a tombstone of a compacted topic is kept after the first "
        "compaction that processed it. A consumer that reads the log from its start must reach "
        "the tombstone within this time to see it.",
    )
    file_delete_delay_ms: NonNegativeLong = Field(
        default=DEFAULT_FILE_DELETE_DELAY_MS,
        description="Time for which a file that is no longer part of the log is kept for readers "
        "that still use it. A writer may take half of it between listing the end of the log and "
        "the confirmation of its append; after that it lists the log again. After you lower this "
        "value, wait for `metadata.max.age.ms` before the next cleaning: until then running "
        "clients rely on the old value. With `table.format=delta` it cannot be 0.",
    )
    stripes: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Number of stripes of the topic. A stripe orders the batches of all its "
        "partitions by one put for many of them, for topics of many partitions on an object "
        "store. Such a topic has one replica, in the cluster's root. Changed by `spark-log topics "
        "alter --stripes`, which moves the partitions. 0: each partition has a log of its own, "
        "and each append is a put. Not in Kafka.",
    )
    table_format: Literal["none", "delta"] = Field(
        default="none",
        description="`delta`: the cleaner writes the cold part of the log as Parquet files, and "
        "these files are a Delta table that other programs read. After a change to `none`, new "
        "merged segments are Arrow files again; Parquet files that exist are read as before. Not "
        "in Kafka.",
    )
    table_commit_interval_ms: NonNegativeLong = Field(
        default=300_000,
        description="Time after which a segment is cold, counted from its last change: the next "
        "cleaning writes it as Parquet. `spark-log clean` does not wait for it. Ignored if "
        "`table.format` is `none`. Not in Kafka.",
    )
    table_deleted_file_retention_ms: NonNegativeLong = Field(
        default=604_800_000,
        description="Time for which a Parquet file is kept after the table has replaced it by "
        "another one, for programs that read an older version of the table. Ignored if "
        "`table.format` is `none`. Not in Kafka.",
    )
    table_value_format: Literal["none", "json", "avro"] = Field(
        default="none",
        description="Format of the values, whose fields become columns of the table beside the "
        "raw value. A value that does not decode has null in them, and the reason in the column "
        "`_decode_error`. Files are written with the settings at that time; after a change, the "
        "columns of older files change when they are merged again. Ignored if `table.format` is "
        "`none`. Not in Kafka.",
    )
    table_schema: str = Field(
        default="",
        description="The columns. For `json` a DDL of Spark's, such as `carrier STRING, dep_delay "
        "INT, origin STRUCT<airport: STRING>`; fields that it does not name are ignored. For "
        "`avro` the schema of the values, a record in JSON. Columns can be added later: in older "
        "files they are null. A column keeps its type and cannot be removed, also while "
        "`table.value.format` is `none`, which otherwise ignores this. Not in Kafka.",
    )
    table_keep_value: bool = Field(
        default=True,
        description="Whether Parquet files keep the raw value. `false` leaves it out in each "
        "record whose columns give the same bytes when they are encoded. Consumers get it as "
        "before; in the table it is null. Ignored if `table.value.format` is `none`. Not in "
        "Kafka.",
    )
    flush_on_append: bool = Field(
        default=True,
        description="Whether an append on a local file system is synced to disk (file and "
        "directory) before it is acknowledged. With `false`, a power cut can lose any record that "
        "the operating system has not written to disk by itself (on Linux about the last 30 "
        "seconds), not only the newest ones. If it leaves a hole or half a segment, the log is "
        "reported as damaged. Everything else is synced for every topic: merged and compacted "
        "segments, deleted records, snapshots, commits and metadata. A killed process loses "
        "nothing with either value. Kafka does not sync by default. Object stores always sync.",
    )


INTERNAL_LOG_CONFIG: Final = TopicConfig(
    merge_tail_segments=0, message_timestamp_after_max_ms=LONG_MAX, max_message_bytes=INT_MAX
)
"""Settings of a log that spark-log itself keeps: the cluster's metadata, a group, or the state of a
transactional id. It is not merged, because its owner moves its start. An append must not be refused
because a clock jumped back between stamping and appending a record, or because of the size of a
record that holds a group with thousands of members."""
