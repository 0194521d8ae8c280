"""`Admin` methods for the cluster and its brokers: a broker here is a storage root."""

from __future__ import annotations

import os
from collections import Counter

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.admin.types import BrokerDescription, ClusterDescription
from spark_log.cluster import Cluster, register_broker
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    alter_broker_records,
    fence_broker_records,
    unregister_broker_records,
)
from spark_log.types import TopicPartition


class BrokerOperations(ClusterAccess):
    """Describes the cluster; registers, fences and unregisters its brokers."""

    @limited
    def describe_cluster(self) -> ClusterDescription:
        """Describe the cluster: its id and its brokers (storage roots).

        Raises:
            RootNotFoundError: there is no cluster at the root.
            StorageError: the root cannot be read.
        """
        cluster = self._cluster()
        return ClusterDescription(
            cluster.cluster_id, tuple(_describe_brokers(cluster.root, cluster.image()))
        )

    @limited
    def list_brokers(self) -> list[BrokerDescription]:
        """Describe the registered brokers, sorted by id; only the root of broker 0 is read.

        Raises:
            RootNotFoundError: there is no cluster at the root.
            StorageError: the root cannot be read.
        """
        cluster = self._cluster()
        return _describe_brokers(cluster.root, cluster.image())

    @limited
    def register_broker(
        self,
        broker_id: int,
        log_dir: str | os.PathLike[str],
        *,
        rack: str | None = None,
        timeout_ms: float | None = None,
    ) -> BrokerDescription:
        """Register a storage root as a broker of the cluster.

        If the cluster's root does not exist, it is created first.

        The broker's root gets a ``meta.properties``, and then the metadata log gets a record. After
        a failure between the two, register the broker again. Existing partitions are not moved. If
        the data of a broker were lost, fence it, and register it again with an empty root.

        Args:
            broker_id: the broker's id, from 1 on.
            log_dir: the path or URL of its root, without credentials, by which every client opens
                the root. A missing root is created. Its storage options are the client's
                ``broker_storage_options`` for this id.
            rack: the rack that the root is in; None without one.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            DuplicateBrokerRegistrationError: the id or the root is registered; or the broker is
                fenced, and some partition has no other replica that may lead.
            InvalidRootError: the root shares files with another broker's root, belongs to another
                cluster or broker, has the data of an earlier registration, or its URL has
                credentials.
            InvalidConfigurationError: the id is out of range, the rack is empty, or a storage
                option is unknown.
            UnsupportedStoreError: the storage does not support put-if-absent.
            UnknownOutcomeError: it is not known whether the broker was registered.
            StorageError: a root cannot be reached.
        """
        cluster = self._cluster(create=True)
        register_broker(cluster, broker_id, log_dir, rack=rack)
        return _describe(cluster, broker_id)

    @limited
    def alter_broker(
        self, broker_id: int, *, rack: str | None, timeout_ms: float | None = None
    ) -> BrokerDescription:
        """Change the rack of a broker, also of broker 0. Its replicas are not moved.

        Args:
            broker_id: the broker's id.
            rack: the rack that its root is in; None without one.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            InvalidConfigurationError: the rack is empty.
        """
        self._commit(lambda image: alter_broker_records(image, broker_id, rack=rack), False)
        return _describe(self._cluster(), broker_id)

    @limited
    def fence_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> BrokerDescription:
        """Fence a broker: other replicas lead its partitions. Harmless if it is fenced.

        If no other replica can lead a partition, it has no leader and accepts no records.

        Args:
            broker_id: the broker's id.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
        """
        return self._set_fenced(broker_id, fenced=True)

    @limited
    def unfence_broker(
        self, broker_id: int, *, timeout_ms: float | None = None
    ) -> BrokerDescription:
        """Let a fenced broker lead partitions again. Harmless if it is not fenced.

        Args:
            broker_id: the broker's id.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
        """
        return self._set_fenced(broker_id, fenced=False)

    @limited
    def unregister_broker(
        self, broker_id: int, *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """Unregister a broker; one that still holds replicas only gets no new ones from now on.

        Kafka unregisters a broker at once, and its replicas are offline.

        Args:
            broker_id: the broker's id.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            The partitions that it holds replicas of: move them, and call this again. Empty if the
            broker is no longer registered. Its root keeps its files.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            InvalidConfigurationError: it is the root of the metadata log.
        """
        self._commit(lambda image: unregister_broker_records(image, broker_id), False)
        image = self._cluster().image()
        return [
            TopicPartition(topic.name, number)
            for topic in image.topics()
            for number, partition in sorted(topic.partitions.items())
            if broker_id in partition.replicas
        ]

    def _set_fenced(self, broker_id: int, *, fenced: bool) -> BrokerDescription:
        self._commit(lambda image: fence_broker_records(image, broker_id, fenced=fenced), False)
        return _describe(self._cluster(), broker_id)


def _describe(cluster: Cluster, broker_id: int) -> BrokerDescription:
    image = cluster.image()
    image.broker(broker_id)  # another process may just have unregistered it
    return next(
        each for each in _describe_brokers(cluster.root, image) if each.broker_id == broker_id
    )


def _describe_brokers(root: str, image: MetadataImage) -> list[BrokerDescription]:
    replicas, in_sync, leaders = _counts(image)
    return [
        BrokerDescription(
            broker_id=broker.broker_id,
            log_dir=root if broker.broker_id == ROOT_BROKER_ID else broker.root,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            broker_epoch=broker.broker_epoch,
            incarnation_id=broker.incarnation_id,
            replica_count=replicas[broker.broker_id],
            in_sync_count=in_sync[broker.broker_id],
            leader_count=leaders[broker.broker_id],
        )
        for broker in image.brokers()
    ]


def _counts(image: MetadataImage) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Return by broker its numbers of replicas, in-sync replicas, and partitions that it leads."""
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    for topic in image.topics():
        for partition in topic.partitions.values():
            replicas.update(partition.replicas)
            in_sync.update(partition.isr)
            leaders[partition.leader] += 1
    return replicas, in_sync, leaders
