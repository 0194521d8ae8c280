"""Replication: replicas catch up and move, and a controller watches them.

A `Replicator` copies the log of a partition to one replica that is not in sync, and returns it to
the in-sync replicas; a `ClusterReplicator` does so for many. A `Controller` watches brokers and
partitions, and decides on changes; each `Decision` has its reason.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
