"""`ProducerConfig`: the settings of a producer."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from spark_log.config.client import RequestTimeoutMs
from spark_log.config.compression import CODECS
from spark_log.config.defaults import DEFAULT_REQUEST_TIMEOUT_MS
from spark_log.config.foreign_keys import CLIENT_KEYS, ForeignKeys
from spark_log.config.model import (
    INT_MAX,
    ConfigModel,
    NonNegativeInt,
    NonNegativeLong,
    PositiveInt,
    Synonyms,
)


class ProducerConfig(ConfigModel):
    """Settings of a `Producer`."""

    title: ClassVar[str] = "Producer"
    foreign: ClassVar[ForeignKeys] = CLIENT_KEYS

    acks: Annotated[
        Literal["all", "1", "0"], Synonyms({0: "0", 1: "1", -1: "all", "-1": "all"})
    ] = Field(
        default="all",
        description="When a record is acknowledged. `all`: when all in-sync replicas have it. `1`: "
        "when the leader has it; with one replica that is the same. `0`: as soon as its append "
        "begins; the record then has no offset and is not retried. `-1` is another name of `all`.",
    )
    batch_size: NonNegativeInt = Field(
        default=16_384,
        description="Bytes of records for one partition that are sent without waiting for "
        "`linger.ms`. Records that arrive until the append begins are appended with them. 0: each "
        "record is a batch of its own.",
    )
    buffer_memory: NonNegativeLong = Field(
        default=33_554_432,
        description="Maximum bytes of records that wait for their acknowledgement. While the "
        "buffer is full, `send` blocks.",
    )
    client_id: str = Field(
        default="",
        description="Name of the producer in log lines and metrics, and the client id that quotas "
        "apply to (docs/quotas.md). Empty: the producer generates a name.",
    )
    compression_type: Annotated[
        Literal["none", "lz4", "zstd"], Synonyms({None: "none"}), CODECS
    ] = Field(
        default="none",
        description="Compression that the producer uses for topics whose own `compression.type` "
        "is `producer`. In place of `gzip` the producer uses `zstd`, and in place of `snappy` it "
        "uses `lz4`, with a warning: Arrow files support no other codecs.",
    )
    delivery_timeout_ms: NonNegativeInt = Field(
        default=120_000,
        description="Maximum time from `send` until a record is acknowledged or has failed, "
        "retries included. At its end, the process waits for the same time for records that were "
        "not flushed.",
    )
    enable_idempotence: bool = Field(
        default=True,
        description="Whether retries can neither duplicate nor reorder records. Requires "
        "`acks=all` and `retries` above 0. With other values of these, `true` is refused if you "
        "set it, and the default becomes `false`.",
    )
    flush_on_exit: bool = Field(
        default=True,
        description="Whether records that were not flushed are sent when the process ends: at a "
        "regular exit, and on SIGTERM if the program has no handler for it. Not in Kafka.",
    )
    linger_ms: NonNegativeLong = Field(
        default=5,
        description="Time for which a record waits for other records to be appended with it. The "
        "default is that of KIP-1030.",
    )
    max_block_ms: NonNegativeLong = Field(
        default=60_000,
        description="Maximum time that opening a `Producer`, `send` and `partitions_for` block "
        "because the buffer is full or the storage does not answer. Opening waits at least for "
        "`request.timeout.ms`.",
    )
    max_in_flight_requests_per_connection: PositiveInt = Field(
        default=5,
        description="Maximum number of appends in progress, but never fewer than 16 for a "
        "transactional producer. Each partition has at most one of them, so the order of records "
        "does not depend on this value.",
    )
    max_request_size: NonNegativeInt = Field(
        default=1_048_576,
        description="Maximum size of a record in bytes before compression: key, value and headers "
        "together. The topic's `max.message.bytes` applies as well.",
    )
    metadata_max_age_ms: NonNegativeLong = Field(
        default=300_000,
        description="Time after which the producer reads the partitions of a topic again. It "
        "notices a deleted topic at once.",
    )
    partitioner_ignore_keys: bool = Field(
        default=False,
        description="Whether the default partitioner treats every record like one without a key.",
    )
    request_timeout_ms: RequestTimeoutMs = DEFAULT_REQUEST_TIMEOUT_MS
    retries: NonNegativeInt = Field(
        default=INT_MAX,
        description="Maximum number of retries of an append. `delivery.timeout.ms` limits their "
        "total time.",
    )
    retry_backoff_max_ms: NonNegativeLong = Field(
        default=1_000,
        description="Maximum pause between two attempts of an append.",
    )
    retry_backoff_ms: NonNegativeLong = Field(
        default=100,
        description="Pause before the first retry of an append. The pause doubles with each "
        "retry, and is varied at random by up to 20 % (KIP-580).",
    )
    transaction_timeout_ms: PositiveInt = Field(
        default=60_000,
        description="Maximum time from the begin of a transaction to its end. After it the "
        "producer appends nothing more in the transaction, and any process that waits for the "
        "transaction aborts it.",
    )
    transactional_id: Annotated[str | None, Field(min_length=1)] = Field(
        default=None,
        description="Makes the producer transactional: `send` needs a transaction. A process that "
        "starts again with the same id ends the transaction that the process before it left open, "
        "and fences that process. Requires `enable.idempotence`.",
    )
