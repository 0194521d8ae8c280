"""A topic as a table: what a version says of a partition, and what the next one may say.

Pure functions (docs/protocol/table.md). `topic_table` holds what a version says, `listing` what a
listing of the log offers, `next_version` and `free_names` decide, `both` plans a read of table and
log. `compaction_end` is what a compaction says of itself in its generation's file.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
