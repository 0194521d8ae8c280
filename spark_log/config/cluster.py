"""Settings that apply to the whole cluster: `ClusterConfig`, and quotas of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import ConfigDict, Field

from spark_log.config.model import (
    INT_MAX,
    LONG_MAX,
    ConfigModel,
    NonNegativeInt,
    NonNegativeLong,
    PositiveInt,
    PositiveLong,
)
from spark_log.config.replication import ReplicationConfig
from spark_log.errors import InvalidConfigurationError

DEFAULT_MAX_CLOCK_SKEW_MS: Final = 600_000
"""Ten minutes: more than the clocks of synchronised machines differ, less than any retention."""


_REFUSED_BY_LIMITS: Final = {
    "group.min.session.timeout.ms": "no consumer could join a group",
    "group.consumer.min.session.timeout.ms": "no group could have a timeout of its own",
    "group.consumer.min.heartbeat.interval.ms": "no group could have an interval of its own",
}
"""Consequences of a minimum above its maximum, by the key of the minimum."""


class ClusterConfig(ReplicationConfig):
    """Settings of the whole cluster, kept in the metadata log.

    Set them with `spark-log configs alter --entity-type brokers --entity-default`, as in Kafka. A
    changed limit of groups applies to members that join later.
    """

    title: ClassVar[str] = "Cluster"

    group_max_size: PositiveInt = Field(
        default=INT_MAX,
        description="Maximum number of members of a consumer group.",
    )
    group_min_session_timeout_ms: NonNegativeInt = Field(
        default=6000,
        description="Minimum `session.timeout.ms` that a member of a consumer group may have.",
    )
    group_max_session_timeout_ms: NonNegativeInt = Field(
        default=1_800_000,
        description="Maximum `session.timeout.ms` that a member of a consumer group may have.",
    )
    group_initial_rebalance_delay_ms: NonNegativeInt = Field(
        default=0,
        description="Time that the first members of an empty consumer group wait for others, so "
        "that members that start together get their partitions in one rebalance. Each further "
        "member makes them wait again, for half of `session.timeout.ms` at most in total. In Kafka "
        "the default is 3000.",
    )
    group_consumer_session_timeout_ms: PositiveInt = Field(
        default=45_000,
        description="Time without heartbeats after which a gateway removes a member that uses "
        "`group.protocol=consumer` (KIP-848) from its group.",
    )
    group_consumer_heartbeat_interval_ms: PositiveInt = Field(
        default=5000,
        description="Time between two heartbeats of a member that uses `group.protocol=consumer` "
        "(KIP-848); less than `group.consumer.session.timeout.ms`.",
    )
    group_consumer_min_session_timeout_ms: PositiveInt = Field(
        default=45_000,
        description="Minimum `consumer.session.timeout.ms` that a group may have of its own.",
    )
    group_consumer_max_session_timeout_ms: PositiveInt = Field(
        default=60_000,
        description="Maximum `consumer.session.timeout.ms` that a group may have of its own.",
    )
    group_consumer_min_heartbeat_interval_ms: PositiveInt = Field(
        default=5000,
        description="Minimum `consumer.heartbeat.interval.ms` that a group may have of its own.",
    )
    group_consumer_max_heartbeat_interval_ms: PositiveInt = Field(
        default=15_000,
        description="Maximum `consumer.heartbeat.interval.ms` that a group may have of its own.",
    )
    max_clock_skew_ms: NonNegativeLong = Field(
        default=DEFAULT_MAX_CLOCK_SKEW_MS,
        description="Maximum difference between the clock of a process and the clock of the "
        "storage. A process with a larger difference deletes and expires nothing, and reports the "
        "difference. Not in Kafka.",
    )
    transaction_max_timeout_ms: PositiveInt = Field(
        default=900_000,
        description="Maximum `transaction.timeout.ms` that a transactional producer may have.",
    )
    transactional_id_expiration_ms: PositiveInt = Field(
        default=604_800_000,
        description="Time without a transaction after which `spark-log clean` forgets the producer "
        "ids of a `transactional.id`. A producer that still has one of them is fenced.",
    )

    default_replication_factor: PositiveInt = Field(
        default=1,
        le=32_767,
        description="Number of replicas of the partitions of a new topic whose replication factor "
        "is not given.",
    )
    auto_leader_rebalance_enable: bool = Field(
        default=True,
        description="Whether the controller moves the leadership of partitions back to their "
        "preferred replicas. Each move needs a full set of in-sync replicas, and takes the "
        "previous leader out of it until that one has come back.",
    )
    leader_imbalance_per_broker_percentage: NonNegativeInt = Field(
        default=10,
        le=100,
        description="Share of the partitions with a broker as their preferred leader that other "
        "brokers may lead, in percent. Above it the controller moves leaderships back to the "
        "broker.",
    )
    leader_imbalance_check_interval_seconds: PositiveLong = Field(
        default=300,
        description="Interval at which the controller compares leaders with preferred leaders.",
    )
    replication_throttled_rate: PositiveLong = Field(
        default=LONG_MAX,
        description="Maximum bytes per second that one `spark-log replicate`, `jobs/replicate.py` "
        "or controller copies to replicas that are not in sync. Kafka has a rate for each broker: "
        "`leader.replication.throttled.rate`, `follower.replication.throttled.rate`.",
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Check ``values`` and freeze them, as `ConfigModel.parse` does.

        Raises:
            InvalidConfigurationError: a value is not valid, or a minimum is above its maximum.
        """
        config = super().parse(values)
        found: Mapping[str, Any] = config.dotted()
        for least, refused in _REFUSED_BY_LIMITS.items():
            most = least.replace(".min.", ".max.")
            if found[least] > found[most]:
                raise InvalidConfigurationError(
                    f"{least} is {found[least]}, more than {most}, {found[most]}: {refused}; set "
                    f"both",
                    key=least,
                )
        return config


class GroupConfig(ConfigModel):
    """Settings of one consumer group that gateways coordinate, kept in the metadata log (KIP-848).

    Set them with `spark-log configs alter --entity-type groups --entity-name GROUP`, or with
    Kafka's `kafka-configs --group GROUP`. A group without a value of its own has that of
    `group.consumer.session.timeout.ms` or `group.consumer.heartbeat.interval.ms` of the cluster.
    A gateway that has the group in memory applies a change within ten seconds. The limits of both
    are settings of the cluster, such as `group.consumer.min.session.timeout.ms`.
    """

    title: ClassVar[str] = "Consumer group"

    consumer_session_timeout_ms: PositiveInt = Field(
        default=45_000,
        description="Time without heartbeats after which a gateway removes a member that uses "
        "`group.protocol=consumer` from this group.",
    )
    consumer_heartbeat_interval_ms: PositiveInt = Field(
        default=5000,
        description="Time between two heartbeats of a member that uses `group.protocol=consumer` "
        "in this group; less than `consumer.session.timeout.ms`.",
    )


class ClientQuotaConfig(ConfigModel):
    """Limits of what one client may produce and consume, kept in the metadata log (KIP-13).

    Set them with `spark-log configs alter --entity-type clients --entity-name ID` for a client id,
    or with `--entity-default` for all client ids that have no limits of their own
    (docs/quotas.md). As in Kafka, these keys have underscores.
    """

    title: ClassVar[str] = "Client quota"

    model_config = ConfigDict(alias_generator=lambda field: field)

    producer_byte_rate: PositiveLong = Field(
        default=LONG_MAX,
        description="Maximum bytes per second that a producer appends, counted as they are stored.",
    )
    consumer_byte_rate: PositiveLong = Field(
        default=LONG_MAX,
        description="Maximum bytes per second that a consumer fetches, counted as they are in "
        "memory.",
    )

    @classmethod
    def key_name(cls, text: str) -> str:
        """Return ``text``: the Kafka names of these keys have underscores."""
        return text
