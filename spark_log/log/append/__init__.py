"""Appends to the log in one directory, of a leader or of a follower, and the files they derive.

- `appender`: the append protocol; `appender_state`: what it keeps of the log between two appends.
- `unsettled_puts`: puts that may or may not have succeeded, and are searched for in the log.
- `follower_appender`: copies of the leader's segments, put at the same offsets.
- `derived_files`, `tail_merger`, `merge_task`: indexes, snapshots and merges that follow an append.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
