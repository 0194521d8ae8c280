"""A cluster of three directories, which a test takes away, empties and brings back."""

import shutil

from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.metadata import shrink_isr
from spark_log.replication import ClusterRecovery, out_of_sync_replicas


class Disks:
    """A cluster with the brokers 0, 1 and 2, each in a directory of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.root = str(folder / "b0")
        self.admin = Admin(self.root)
        self.admin.create_topics([NewTopic("first")])
        for broker_id in (1, 2):
            self.admin.register_broker(broker_id, self.path(broker_id))

    def path(self, broker_id):
        return self.folder / f"b{broker_id}"

    def create(self, *replicas, topic="t", partitions=1, **configs):
        """Create a topic whose partitions have these replicas."""
        replicas = replicas or (1, 2, 0)
        configs = {"min.insync.replicas": "2", "flush.on.append": "false", **configs}
        assignment = dict.fromkeys(range(partitions), replicas)
        self.admin.create_topics(
            [NewTopic(topic, replica_assignment=assignment, topic_configs=configs)]
        )

    def cluster(self):
        """Return the cluster as another process sees it."""
        return Cluster(self.root)

    def partition(self, topic="t", number=0):
        return self.cluster().topic(topic).partitions[number]

    def replica(self, broker_id, topic="t", number=0):
        """Return the log of one replica."""
        cluster = self.cluster()
        return cluster.replica_log(cluster.topic(topic), number, broker_id)

    def send(self, *values, topic="t", **config):
        """Send records, one segment each."""
        with Producer(self.root, **config) as producer:
            for value in values:
                producer.send(topic, value, partition=0).result(30)

    def values(self, topic="t", number=0):
        """Return the values that a reader gets."""
        cluster = self.cluster()
        return values_of(cluster.partition_log(cluster.topic(topic), number))

    def take_away(self, broker_id):
        shutil.move(self.path(broker_id), self.folder / f"away{broker_id}")

    def bring_back(self, broker_id):
        shutil.rmtree(self.path(broker_id), ignore_errors=True)  # what writers made in its place
        shutil.move(self.folder / f"away{broker_id}", self.path(broker_id))

    def wipe(self, broker_id):
        """Lose a disk, and register an empty one in its place."""
        shutil.rmtree(self.path(broker_id))
        self.admin.fence_broker(broker_id)
        self.admin.register_broker(broker_id, self.path(broker_id))

    def leave(self, *brokers, topic="t", number=0):
        """Take replicas out of the in-sync ones."""
        cluster = self.cluster()
        found = cluster.topic(topic)
        epoch = found.partitions[number].leader_epoch
        cluster.metadata.commit(
            lambda image: shrink_isr(image, found.topic_id, number, brokers, leader_epoch=epoch)
        )

    def replicate(self, on_progress=lambda done_bytes: None):
        """Bring all replicas back, as another process."""
        cluster = self.cluster()
        replicas = out_of_sync_replicas(cluster.image())
        return list(ClusterRecovery(cluster, on_progress).run(replicas))


def values_of(log):
    """Return the values of a log's records."""
    return [
        value
        for batch in log.scan(log.observe().log_start_offset)
        for value in batch.records.column("value").to_pylist()
    ]
