"""A Delta table without Spark: its log, its data files, and the cleanup of both.

`state` holds what the log says, `parse` reads it from bytes, `reader` keeps it up to date, and
`delta_log` commits to it.
"""
