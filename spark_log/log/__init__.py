"""The log of a partition, and the logs of its replicas.

A client opens a `PartitionLog` (`Cluster.partition_log`), and needs none of the classes below it:
its `ReplicatedAppender` appends through a `ReplicaChain`, and each replica of the chain is a
`LocalLog` with an `Appender`. The metadata, and the states of groups and transactions, have no
replicas: their logs are a `LocalLog` and a `StateLog`.

A public attribute ``directory`` is a path, relative to the store's root. The `PartitionDirectory`,
which lists this path and opens its segments, is `LocalLog.files`; the parts of a log that get it
keep it as ``_directory``. In `segment` and `files` a directory is always a path.

Logs:

- `partition_log`: the log of a partition, which has replicas: appends to all of them, reads one.
- `local_log`: the log in one directory: of a replica, of the metadata, of a group.
- `state_log`: a log whose newest record holds a whole state.
- `state_log_trimmer`: deletes all but the newest record of such a log.
- `chain`: the replicas of a partition, in order.

What a log does:

- `append`: the append protocol. Appenders also decide which segments at the log's end to merge.
- `read`: reading from one segment to the next, and at the log's end.
- `clean`: the cleaner: retention, merges that no appender has made, compaction, deletion.
- `rewrite`: what appenders and the cleaner have in common: the merge of segments, the policy that
  chooses them, and the deletion of files that are no longer part of the log.
- `verify`: checks of all files.
- `log_start`: moves the log start offset.
- `lag`: how far a reader is behind.
- `max_timestamp`: the record with the largest timestamp.

What a log is made of:

- `snapshot`: snapshots: summaries of segments, and the producer state.
- `directory`: the segments of one directory, listed and opened.
- `segment`: one segment file with its two indexes.
- `producers`: the state of producers and transactions, from batch headers.
- `files`: the names of files, and which of them are the log.
- `cache_budget`: the memory in which all logs of a process may keep what they have read.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
