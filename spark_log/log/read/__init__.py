"""Reading the log in one directory: by offset and by time, and on from its end.

- `log_reader`: reads one segment after the other; `segment_batches`: the batches of one of them.
- `pruning`: which segments and offsets a read by time can skip.
- `tail_view`, `committed_tail_view`: the end of the log as a reader follows it, for each of the two
  isolation levels.
- `leader_epochs`: lookups of leader epochs.
- `probe_interval`: pauses between the probes for the next segment.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
