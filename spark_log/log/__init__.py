"""The log of one partition.

- `partition_log`: the facade; `log_reader` and `append` are its two halves.
- `partition_directory`, `live_log`, `file_names`: the files, and which of them are the log.
- `segment`: one segment file with its two indexes.
- `append`: the append protocol, producer state, validation, tail merges.
- `snapshot`: summaries of segments and the producer state, up to an offset.
- `tail_view`, `probe_interval`: following the log's end.
- `cache_budget`, `segment_table`: what is kept in memory, and how little of it.
- `log_start`, `witness`: moving the log start offset; noticing that all files are gone.
- `clean`, `verify`: retention, merges and compaction; checks of all of the above.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
