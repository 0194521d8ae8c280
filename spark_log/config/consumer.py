"""`ConsumerConfig`: the settings of a consumer, alone or as a member of a group."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from spark_log.config.client import DefaultApiTimeoutMs, RequestTimeoutMs
from spark_log.config.defaults import (
    DEFAULT_API_TIMEOUT_MS,
    DEFAULT_CHECK_CRCS,
    DEFAULT_FETCH_IDLE_INTERVAL_MS,
    DEFAULT_REQUEST_TIMEOUT_MS,
)
from spark_log.config.foreign_keys import CLIENT_KEYS, ForeignKeys
from spark_log.config.model import INT_MAX, ConfigModel, NonNegativeInt, PositiveInt, split_list
from spark_log.config.times import parse_duration
from spark_log.errors import InvalidConfigurationError


def offset_reset(value: str) -> timedelta | Literal["earliest", "latest", "none"]:
    """Return the meaning of a value of ``auto.offset.reset``: a word, or a duration (KIP-1106).

    Raises:
        ValueError: the value is neither.
    """
    if value in ("earliest", "latest", "none"):
        return value  # type: ignore[return-value]
    word, _, text = value.partition(":")
    if word == "by_duration":
        with suppress(InvalidConfigurationError):
            duration = parse_duration("auto.offset.reset", text)
            if duration >= timedelta(0):
                return duration
    raise ValueError("not a known reset policy")


def _checked_offset_reset(value: str) -> str:
    offset_reset(value)
    return value


class ConsumerConfig(ConfigModel):
    """Settings of a `Consumer`."""

    title: ClassVar[str] = "Consumer"
    foreign: ClassVar[ForeignKeys] = CLIENT_KEYS

    client_id: str = Field(
        default="",
        description="Name of the consumer in log lines and in the name of its thread, and the "
        "client id that quotas apply to (docs/quotas.md).",
    )
    auto_offset_reset: Annotated[str, AfterValidator(_checked_offset_reset)] = Field(
        default="latest",
        description="Where the consumer starts in a partition that has no committed offset, or "
        "whose offset is no longer in the log. `none` raises an error. `by_duration:` with an ISO "
        "8601 duration starts at the first record that is not older than this (KIP-1106).",
        examples=["earliest", "latest", "none", "by_duration:PT1H"],
    )
    enable_auto_commit: bool = Field(
        default=True,
        description="Whether a consumer with a group id commits its offsets in the background.",
    )
    auto_commit_interval_ms: NonNegativeInt = Field(
        default=5000,
        description="Minimum interval between automatic commits. An unchanged offset is not "
        "committed again.",
    )
    fetch_min_bytes: NonNegativeInt = Field(
        default=1,
        description="Minimum bytes buffered before `poll` returns, unless `fetch.max.wait.ms` has "
        "passed.",
    )
    fetch_max_wait_ms: NonNegativeInt = Field(
        default=500,
        description="Maximum time that buffered records wait until `fetch.min.bytes` are buffered.",
    )
    fetch_idle_interval_ms: PositiveInt = Field(
        default=DEFAULT_FETCH_IDLE_INTERVAL_MS,
        description="Object stores only: time between two requests for new records of a partition "
        "that has had none for 5 seconds, so the first record after a rest is returned up to this "
        "much later. All such partitions of a consumer together send 10 requests in this time: "
        "with more than 10 of them the time is multiplied by their number / 10. A shorter time "
        "costs more requests.",
    )
    fetch_max_bytes: NonNegativeInt = Field(
        default=52_428_800,
        description="Maximum bytes fetched ahead for all partitions together, counted as they are "
        "in memory, where a segment of one small record takes 10 KB. One record batch may exceed "
        "it, and on an object store `max.partition.fetch.bytes` of each of four partitions, which "
        "are read at once.",
    )
    max_partition_fetch_bytes: NonNegativeInt = Field(
        default=1_048_576,
        description="Maximum bytes fetched ahead for one partition, counted as they are in "
        "memory, where a segment of one small record takes 10 KB. One record batch may exceed it.",
    )
    max_poll_records: PositiveInt = Field(
        default=500,
        description="Maximum number of records that one `poll` returns. Each of n partitions has a "
        "share of one n-th; partitions that have fewer records are returned first, and the others "
        "in turn. `poll_table` is limited by bytes instead.",
    )
    consumer_timeout_ms: int = Field(
        default=-1,
        ge=-1,
        le=INT_MAX,
        description="Time without a new record after which iteration over the consumer ends. -1: "
        "it never ends. A setting of kafka-python.",
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted",
        description="Whether records of transactions that are open or were aborted are returned. "
        "With `read_committed` they are not, and a partition is read up to its last stable offset: "
        "the first record of a transaction that is still open. Records without a transaction are "
        "returned with both values.",
    )
    exclude_internal_topics: bool = Field(
        default=True,
        description="Whether a subscription to a pattern excludes internal topics.",
    )
    check_crcs: bool = Field(
        default=DEFAULT_CHECK_CRCS,
        description="Whether the checksum of every record batch is verified when it is read.",
    )
    metadata_max_age_ms: NonNegativeInt = Field(
        default=300_000,
        description="Maximum interval between two checks for new topics and partitions. On a "
        "local root the consumer notices them at once.",
    )
    retry_backoff_ms: NonNegativeInt = Field(
        default=100,
        description="Pause before the first retry of a read after the storage has failed. The "
        "pause doubles with each retry, and is varied at random by up to 20 % (KIP-580).",
    )
    retry_backoff_max_ms: NonNegativeInt = Field(
        default=1_000,
        description="Maximum pause between two attempts of a read.",
    )
    request_timeout_ms: RequestTimeoutMs = DEFAULT_REQUEST_TIMEOUT_MS
    default_api_timeout_ms: DefaultApiTimeoutMs = DEFAULT_API_TIMEOUT_MS
    group_instance_id: str | None = Field(
        default=None,
        description="Makes the consumer a static member of its group (KIP-345). A process that "
        "returns with the same id within `session.timeout.ms` gets its partitions back, and the "
        "group does not rebalance.",
    )
    client_rack: str = Field(
        default="",
        description="Rack in which the consumer runs. Records are read from an in-sync replica in "
        "the same rack, if there is one, up to the high watermark (KIP-392).",
    )
    session_timeout_ms: PositiveInt = Field(
        default=45_000,
        description="Time without a heartbeat after which a member is removed from its group and "
        "its partitions are assigned to other members.",
    )
    heartbeat_interval_ms: PositiveInt = Field(
        default=3000,
        description="Interval between heartbeats of a group member. At most a third of "
        "`session.timeout.ms` is recommended.",
    )
    max_poll_interval_ms: PositiveInt = Field(
        default=300_000,
        description="Maximum time between two calls of `poll`. A group member that exceeds it "
        "leaves its group.",
    )
    partition_assignment_strategy: Annotated[
        tuple[Literal["range", "roundrobin", "sticky", "cooperative-sticky"], ...],
        BeforeValidator(split_list),
    ] = Field(
        default=("range", "cooperative-sticky"),
        min_length=1,
        description="Assignors that a group member supports, the preferred one first. All members "
        "of a group need one in common.",
    )
