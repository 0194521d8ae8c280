"""A topic as a Delta table of Parquet segments: pure functions (docs/protocol/table.md).

- `topic_table`: the state of a partition in one version of the table.
- `listing`: the files that a listing of the log offers to the table.
- `next_version`: the decision on the next version's files.
- `free_names`: the names and tombstones of the log that the table still needs.
- `both`: a read of the table and then of the log.
- `compaction_end`: the offset up to which a compaction has cleaned, in its generation's file.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
