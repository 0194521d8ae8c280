"""The cluster: its brokers, the replicas in their log directories, and its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_log.types.stripes import StripeDescription


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as ``describe_cluster`` returns it.

    Attributes:
        cluster_id: the cluster's id, as in its ``meta.properties``.
        brokers: its storage roots, sorted by id.
    """

    cluster_id: str
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of a cluster: a storage root that holds replicas.

    Attributes:
        broker_id: the broker's id; 0 is the root of the metadata log.
        log_dir: its path or URL.
        rack: the rack it is in; None without one.
        fenced: whether it may not lead a partition.
        in_controlled_shutdown: whether unregistering it has begun; it gets no new replica.
        broker_epoch: the number of its registration; -1 for broker 0, which has none.
        incarnation_id: the id of its registration, as in its ``meta.properties``; empty for
            broker 0.
        replica_count: the number of partitions of which it holds a replica.
        in_sync_count: the number of partitions of which it holds an in-sync replica.
        leader_count: the number of partitions that it leads.
    """

    broker_id: int
    log_dir: str
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    broker_epoch: int = -1
    incarnation_id: str = ""
    replica_count: int = 0
    in_sync_count: int = 0
    leader_count: int = 0

    @property
    def state(self) -> Literal["active", "fenced", "unregistering"]:
        """The broker's state: ``fenced`` cannot lead, ``unregistering`` gets no new replicas."""
        if self.in_controlled_shutdown:
            return "unregistering"
        return "fenced" if self.fenced else "active"


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A storage root and its replicas, as ``describe_log_dirs`` returns it.

    Attributes:
        broker: the broker's id.
        log_dir: the path or URL of the root.
        replicas: its replicas, ordered by topic and partition.
        error: the reason why the root cannot be read; None if it can.
        stripes: the stripes of the topics of these replicas, ordered by topic and number.
    """

    broker: int
    log_dir: str
    replicas: tuple[ReplicaInfo, ...]
    error: str | None = None
    stripes: tuple[StripeDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory (Kafka's ``ReplicaInfo``, with more fields).

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        size_bytes: the size of the log's segments, and of its part of the objects of a stripe that
            are not at home.
        offset_lag: the number of offsets by which its log end offset is behind the high watermark.
        is_future: whether it is a copy that will replace another replica.
        segments: the number of the log's segments.
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written.
        path: the partition's directory, as a path or URL.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool
    segments: int
    log_start_offset: int
    log_end_offset: int
    path: str


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature that this release knows, as ``describe_features`` returns it (KIP-584).

    Attributes:
        name: the feature's name, such as ``table.version``.
        finalized_level: the level that the cluster uses; 0 if it does not use the feature.
        max_level: the highest level that this release knows.
        release: the first release that knows `max_level`.
        documentation: what the feature adds to the bytes at rest.
    """

    name: str
    finalized_level: int
    max_level: int
    release: str
    documentation: str
