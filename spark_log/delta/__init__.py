"""A Delta table without Spark: its log, its data files, and the cleanup of both.

`state` holds the content of the log, `parse` reads it from bytes, `reader` keeps it up to date, and
`delta_log` commits to the log; `checkpoint` writes the state as one file.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
