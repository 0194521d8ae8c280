"""The command line: `main.main` is the console script ``spark-log``; one file per command.

Answers go to stdout; notes, progress and errors go to stderr. An error is one line. The exit status
is 2 for a mistake of the user and 1 for a failure.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
