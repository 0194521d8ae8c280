"""A topic as a Delta table (docs/protocol/table.md).

Pure functions decide: `partition_table` holds what a version says of a partition, `listing` what a
listing of its log offers, `next_version` and `free_names` say what follows, `both` plans a read of
table and log. `topic_table` reads a table, `committer` appends versions, and `table_of_log` answers
those who clean a log.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
