"""`ReplicationConfig`: the cluster's settings of replication, which a topic may override."""

from __future__ import annotations

from pydantic import Field

from spark_log.config.model import ConfigModel, PositiveInt, PositiveLong


class ReplicationConfig(ConfigModel):
    """Settings of replicated partitions: those of the topic, else those of the cluster."""

    min_insync_replicas: PositiveInt = Field(
        default=1,
        description="Minimum number of in-sync replicas, up to the number of replicas, with which "
        "an append with `acks=all` is accepted. With fewer it fails with NotEnoughReplicasError. A "
        "topic without this key has the value of the cluster.",
    )
    unclean_leader_election_enable: bool = Field(
        default=False,
        description="Whether a replica that is not in sync may lead a partition if no other one "
        "can. Records that it does not have are lost. A topic without this key has the value of "
        "the cluster.",
    )
    replica_lag_time_max_ms: PositiveLong = Field(
        default=30_000,
        description="Maximum time for which a replica may lag behind the leader. After it the "
        "replica leaves the in-sync replicas. A topic without this key has the value of the "
        "cluster. In Kafka this is a setting of the broker only.",
    )
