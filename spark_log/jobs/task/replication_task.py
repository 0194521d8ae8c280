"""Brings replicas back into sync in Spark tasks, one task per partition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pyspark import Accumulator

from spark_log.cluster import open_cluster
from spark_log.config import BrokerOptions
from spark_log.replication import ClusterRecovery, out_of_sync_replicas
from spark_log.storage import StorageOptions
from spark_log.types import TopicPartition
from spark_log.util import Throttle


@dataclass(frozen=True, slots=True)
class ReplicationTask:
    """The arguments of a Spark task that brings a partition's replicas back; pickled to the tasks.

    Attributes:
        root: the root's URL.
        storage_options: the options of the file system; never shown.
        broker_options: broker id → the options of the file system of its root; never shown.
        brokers: the brokers whose replicas are brought back; None for all.
        bytes_per_second: the maximum number of bytes that a task copies per second.
        copied_bytes: the accumulator of the bytes that each task has copied; None for none.
    """

    root: str
    storage_options: StorageOptions = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    brokers: tuple[int, ...] | None = None
    bytes_per_second: float = math.inf
    copied_bytes: Accumulator[int] | None = None

    def catch_up(self, partition: TopicPartition) -> dict[str, Any]:
        """Bring all replicas of one partition back, one after the other.

        Returns:
            A dict with ``replicas``: `RecoveredReplica.document` of each replica. Replicas of a
            deleted topic are left out.
        """
        cluster = open_cluster(self.root, self.storage_options, broker_options=self.broker_options)
        image = cluster.image()
        if image.find(partition.topic) is None:
            return {"replicas": []}
        replicas = [
            each
            for each in out_of_sync_replicas(image, [partition.topic], self.brokers)
            if each.partition == partition.partition
        ]
        recovery = ClusterRecovery(cluster, Throttle(self.bytes_per_second))
        done = list(recovery.run(replicas))
        if self.copied_bytes is not None:
            self.copied_bytes.add(sum(each.report.copied_bytes for each in done if each.report))
        return {"replicas": [each.document() for each in done]}
