"""`GatewayConfig`: the settings of a gateway, which speaks Kafka's protocol."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from spark_log.config.client import (
    DEFAULT_API_TIMEOUT_MS,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DefaultApiTimeoutMs,
    RequestTimeoutMs,
)
from spark_log.config.model import INT_MAX, ConfigModel, NonNegativeInt, PositiveInt, PositiveLong


class GatewayConfig(ConfigModel):
    """Settings of a gateway. Names and defaults are those of Kafka's brokers where Kafka has them.

    They are given to ``spark-log gateway`` as ``--override key=value``.
    """

    title: ClassVar[str] = "Gateway"

    broker_rack: str = Field(
        default="",
        description="The rack that the gateway is in. Clients in the same rack are directed to it.",
    )
    broker_id: int = Field(
        default=-1,
        ge=-1,
        le=INT_MAX,
        description="The id that clients know the gateway by. -1: that of an earlier gateway with "
        "the same address, else a free one.",
    )
    broker_heartbeat_interval_ms: PositiveInt = Field(
        default=2_000,
        description="Time between two signs of life of a gateway, and between two checks of those "
        "of the others.",
    )
    broker_session_timeout_ms: PositiveInt = Field(
        default=9_000,
        description="Time after which a gateway without a sign of life is removed: its partitions "
        "and groups go to others.",
    )
    broker_join_delay_ms: NonNegativeInt = Field(
        default=6_000,
        description="Time for which a new gateway must live before partitions and groups go to it, "
        "so that one that crashes at each start moves nothing. The first gateway does not wait.",
    )
    num_io_threads: PositiveInt = Field(
        default=32,
        description="Number of threads that read and write the log for requests.",
    )
    max_connections: PositiveInt = Field(
        default=10_000,
        description="Maximum number of connections; further ones are closed at once.",
    )
    connections_max_idle_ms: PositiveLong = Field(
        default=600_000,
        description="Time after which a connection without requests is closed.",
    )
    socket_request_max_bytes: PositiveInt = Field(
        default=104_857_600,
        description="Maximum size of a request. The connection of a larger one is closed.",
    )
    socket_receive_max_ms: PositiveLong = Field(
        default=30_000,
        description="Maximum time between the first and the last byte of a request. The connection "
        "of a slower one is closed, because a request takes its memory when it begins.",
    )
    queued_max_request_bytes: PositiveInt = Field(
        default=536_870_912,
        description="Maximum size of all requests that are received or answered at the same time. "
        "No more are read from the sockets until there is room.",
    )
    max_in_flight_requests_per_connection: PositiveInt = Field(
        default=64,
        description="Maximum number of requests of a connection that are answered at the same "
        "time. No more are read from its socket until there is room.",
    )
    tail_cache_bytes: NonNegativeInt = Field(
        default=67_108_864,
        description="Maximum memory for the newest batches of all partitions, which consumers at "
        "the logs' ends get without a request to the storage. 0 keeps none.",
    )
    num_partitions: PositiveInt = Field(
        default=1,
        description="Number of partitions of a topic that is created without a number.",
    )
    auto_create_topics_enable: bool = Field(
        default=True,
        description="Whether a request for the metadata of an unknown topic creates it, if the "
        "client permits that.",
    )
    metadata_max_age_ms: NonNegativeInt = Field(
        default=1_000,
        description="Maximum age of the metadata that answers are made of. A topic that somebody "
        "else changes is seen after this time.",
    )
    request_timeout_ms: RequestTimeoutMs = DEFAULT_REQUEST_TIMEOUT_MS
    default_api_timeout_ms: DefaultApiTimeoutMs = DEFAULT_API_TIMEOUT_MS
