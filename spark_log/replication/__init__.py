"""Replicas come back, move, and are watched.

A `Replicator` copies the log of a partition to one replica that is not in sync, and puts it back
into the in-sync replicas; a `ClusterReplicator` does so for many. A `Controller` watches brokers
and partitions, and decides what is to be done; each `Decision` has its reason.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
