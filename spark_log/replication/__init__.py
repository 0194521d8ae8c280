"""Replicas return to the in-sync replicas, and a controller watches brokers and partitions.

`ReplicaRecovery` copies the log of a partition to one replica that is not in sync, and returns it
to the in-sync replicas. `ClusterRecovery` does so for many replicas, `BackgroundRecovery` on other
threads. The `Controller` probes the brokers' roots (`BrokerProbes`), decides on changes of the
metadata, each with its reason (`ControllerDecision`), and lets `ChainChecks` look for records that
no writer copied. How a writer appends to all replicas is in `spark_log.log.chain`; how the metadata
of a partition change, in `spark_log.metadata.partitions`.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
