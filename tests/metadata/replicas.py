"""Helpers of tests with real replicas: each broker is a directory."""

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, register_broker
from spark_log.metadata import begin_joining, complete_joining, shrink_isr


def replicated_cluster(path, *, brokers=3, racks=False, **configs):
    """Return a cluster of some directories, with the topic ``t``, which has a replica on each.

    With ``racks`` broker 1 is in ``rack1``, and so on.
    """
    cluster = Cluster(path / "r0", create=True)
    for broker_id in range(1, brokers):
        rack = f"rack{broker_id}" if racks else None
        register_broker(cluster, broker_id, path / f"r{broker_id}", rack=rack)
    configs = {"merge.tail.segments": 0, "retention.ms": -1} | {
        key.replace("_", "."): value for key, value in configs.items()
    }
    assignment = {0: list(range(brokers))}
    Admin(cluster.root).create_topics(
        [NewTopic("t", replica_assignment=assignment, topic_configs=configs)]
    )
    return cluster


def log_of(cluster):
    """Return the log of the topic's partition, which appends to all replicas."""
    return cluster.partition_log(cluster.topic("t"), 0)


def replica_of(cluster, broker_id):
    return cluster.replica_log(cluster.topic("t"), 0, broker_id)


def state(cluster):
    return cluster.topic("t").partitions[0]


def append(log, records, *, acks=-1, producer=None):
    """Append one segment; with ``acks=1`` only the leader has it."""
    writer = log.segment_writer(producer=producer)
    writer.write(records)
    try:
        return log.append_segment(writer.finish(), acks=acks)
    finally:
        writer.discard()


def leave(cluster, *brokers):
    """Take brokers out of the in-sync replicas, and put the barrier of the new epoch."""
    topic, epoch = cluster.topic("t"), state(cluster).leader_epoch
    cluster.metadata.commit(
        lambda image: shrink_isr(image, topic.topic_id, 0, brokers, leader_epoch=epoch)
    )
    log_of(cluster).replicate()


def come_back(cluster, broker_id, number=0):
    """Let a replica that is a prefix of the leader join, and get in sync."""
    topic = cluster.topic("t")
    epoch = state(cluster).leader_epoch
    cluster.metadata.commit(
        lambda image: begin_joining(
            image, topic.topic_id, 0, broker_id, leader_epoch=epoch, directory=number
        )
    )
    log_of(cluster).replicate()
    epoch = state(cluster).leader_epoch
    cluster.metadata.commit(
        lambda image: complete_joining(image, topic.topic_id, 0, broker_id, leader_epoch=epoch)
    )
    log_of(cluster).replicate()
    assert state(cluster).isr[-1] == broker_id
