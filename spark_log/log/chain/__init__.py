"""Replication of a partition: a chain of replicas, in the order that the metadata give.

- `partition_state`: which replicas there are at one leader epoch, and who tells of a newer one.
- `replica_chain`: appends to the leader, and changes the chain when a replica fails.
- `chain_followers`: brings the other replicas up to the leader.
- `chain_appender`: stages segments and puts them through the chain.
- `replica_selection`: which replica is read, and what readers see there.
- `replica_fetcher`: copies segments to a replica that lacks them.
- `chain_start`, `committed_end`: deleting records; how far a replica outside the chain goes.
- `replicated_log`: a partition's log that appends through the chain and reads what all have.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
