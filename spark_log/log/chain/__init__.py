"""Replication of a partition: a chain of replicas, in the order that the metadata give.

- `partition_state`: the replicas at one leader epoch, and the source of newer states.
- `replica_chain`: appends to the leader, and to the other replicas through `chain_followers`.
- `failover`, `append_failover`: one operation, or one append, that continues under newer states.
- `chain_followers`: brings the other replicas up to the leader.
- `replicated_appender`: stages segments and appends them to all replicas.
- `replicated_reader`: reads one replica up to the high watermark, or the next one if it fails.
- `replica_selection`: chooses the replica that is read, and limits what readers see of it.
- `replica_fetcher`: copies segments to a replica that lacks them.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
