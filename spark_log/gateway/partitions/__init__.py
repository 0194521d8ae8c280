"""The partitions that a gateway appends to and reads.

- `partitions`: all of them, by topic; `partition`: one, and what is known of its log's end.
- `stripe`: a stripe, whose partitions share the puts of appends and the requests at the end.
- `append_queue`: all batches that wait while a put is in flight become one append.
- `produced_batch`: a client's batch, and its conversion; `tail_cache`: the newest ones, to be read.
- `partition_logs`: the logs of one partition, for threads; `log_cursor`: a read that continues.
- `waiting_fetch`: a fetch that waits; `tail_watch`: probes for the appends of others meanwhile.
- `client_quotas`: the quotas of clients.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
