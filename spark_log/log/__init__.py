"""The log of a partition, and the logs of its replicas.

- `partition_log`: the log of a partition, which has replicas: appends to all of them, reads one.
- `local_log`: the log in one directory: of a replica, of the metadata, of a group.
- `state_log`: a log whose newest record holds a whole state.
- `chain`: the replicas of a partition, in order.
- `append`, `read`: the append protocol; reading from one segment to the next, and at the log's end.
- `clean`, `verify`: retention, merges and compaction; checks of all files.
- `rewrite`: merging segments, and deleting files that are no longer part of the log.
- `snapshot`, `directory`, `segment`: summaries and producer state; the segments of one directory;
  one segment file with its two indexes.
- `producers`, `files`: the state of producers and transactions from batch headers; the names of
  files, and which of them are the log.
- `log_start`, `lag`, `max_timestamp`: moving the log start offset; lookups that read the log.
- `cache_budget`: memory that all logs of a process may use to keep what they have read.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
