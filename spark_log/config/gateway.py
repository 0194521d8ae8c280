"""`GatewayConfig`: the settings of a gateway, which speaks Kafka's protocol."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from spark_log.config.client import DefaultApiTimeoutMs, RequestTimeoutMs
from spark_log.config.defaults import DEFAULT_API_TIMEOUT_MS, DEFAULT_REQUEST_TIMEOUT_MS
from spark_log.config.model import (
    INT_MAX,
    ConfigModel,
    NonNegativeInt,
    NonNegativeLong,
    PositiveInt,
    PositiveLong,
    split_list,
)

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def _split_principals(value: object) -> object:
    """Return the principals of a text, which are separated by semicolons, as in Kafka."""
    names = value.split(";") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(each, str) for each in names):
        return value
    found = [each.strip() for each in names if each.strip()]
    for each in found:
        kind, _, name = each.partition(":")
        if kind != "User" or not name:
            raise ValueError(f"{each!r} is no principal, such as User:alice")
    return found


class GatewayConfig(ConfigModel):
    """Settings of a gateway. Names and defaults are those of Kafka's brokers where Kafka has them.

    They are given to ``spark-log gateway`` in a file (``--gateway-config``), or one by one
    (``--override key=value``).
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
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT",
        description="Whether the listener encrypts (SSL) and authenticates (SASL).",
    )
    ssl_keystore_location: str = Field(
        default="",
        description="PEM file with the private key and the certificates of the listener, as with "
        "Kafka's `ssl.keystore.type=PEM`.",
    )
    ssl_key_password: str = Field(
        default="",
        repr=False,
        description="Password of the private key; empty if it is not encrypted. Never shown.",
    )
    ssl_truststore_location: str = Field(
        default="",
        description="PEM file with the certificates that clients' certificates are signed by.",
    )
    ssl_client_auth: Literal["none", "requested", "required"] = Field(
        default="none", description="Whether clients show a certificate."
    )
    sasl_enabled_mechanisms: Annotated[tuple[SaslMechanism, ...], BeforeValidator(split_list)] = (
        Field(
            default=("SCRAM-SHA-256", "SCRAM-SHA-512"),
            description="Mechanisms that clients may authenticate with. PLAIN sends the password: "
            "add it with SASL_SSL only.",
        )
    )
    sasl_users_file: str = Field(
        default="",
        description="File of users, as `spark-log gateway-users --file` writes it. It is read "
        "again when it changes. A user in it has no other credentials; other users are in the "
        "metadata of the root. Not in Kafka.",
    )
    super_users: Annotated[tuple[str, ...], BeforeValidator(_split_principals)] = Field(
        default=(),
        examples=["User:alice;User:bob"],
        description="Principals that may list and alter users over the network, separated by "
        "semicolons. Without it nobody may.",
    )
    connections_max_reauth_ms: NonNegativeLong = Field(
        default=0,
        description="Time after which a client of SASL has to authenticate again; its connection "
        "is closed at the next request otherwise. A deleted user is out then. 0 for no limit.",
    )
    connection_failed_authentication_delay_ms: NonNegativeInt = Field(
        default=100,
        description="Pause before the answer to a failed authentication.",
    )
    num_io_threads: PositiveInt = Field(
        default=32,
        description="Number of threads that read and write the log for requests. One more appends "
        "small batches that are not synced.",
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
        "of a slower one is closed. So is that of a client that reads nothing of its answers for "
        "this time, while other requests wait for memory.",
    )
    queued_max_request_bytes: PositiveInt = Field(
        default=536_870_912,
        description="Maximum size of all requests that are received or answered at the same time, "
        "and of the records in answers. No more are read from the sockets until there is room. "
        "Requests of which only a part has arrived take at most half of it.",
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
    max_incremental_fetch_session_cache_slots: NonNegativeInt = Field(
        default=1_000,
        description="Maximum number of fetch sessions. A client without one sends all of its "
        "partitions with each fetch. 0 keeps none.",
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
