"""Removes Spark's own lines from a program's stderr."""

import re

_LOST_WORKER = re.compile(
    r"""Traceback \(most recent call last\):\n(?:  File "[^"]*/pyspark/daemon\.py", .*\n)+"""
    r"BrokenPipeError: .*\n"
)


def without_lost_workers(stderr: str) -> str:
    """Leave out the traceback of Spark's daemon when Spark gives up a worker that is starting.

    That happens on a busy machine.
    """
    return _LOST_WORKER.sub("", stderr)
