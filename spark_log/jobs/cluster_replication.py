"""Brings replicas that are not in sync back in Spark tasks, one task per partition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pyspark import Accumulator

from spark_log.config import BrokerOptions
from spark_log.log import Throttle
from spark_log.metadata import open_cluster
from spark_log.replication import ClusterReplicator, out_of_sync_replicas
from spark_log.storage import StorageOptions
from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicationTask:
    """What a Spark task needs to bring replicas of a partition back. It is pickled to the tasks.

    Attributes:
        root: URL of the root.
        storage_options: options of the file system; never shown.
        broker_options: broker id → options of the file system of its root; never shown.
        brokers: only replicas on these; None for all.
        bytes_per_second: maximum number of bytes that a task copies.
        copied_bytes: gets the bytes that a task has copied, when it ends; None for none.
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
            ``replicas``: for each of them `ReplicatedPartition.document`. Replicas of a topic that
            was deleted are left out.
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
        replicator = ClusterReplicator(cluster, Throttle(self.bytes_per_second))
        done = list(replicator.catch_up(replicas))
        if self.copied_bytes is not None:
            self.copied_bytes.add(sum(each.report.copied_bytes for each in done if each.report))
        return {"replicas": [each.document() for each in done]}
