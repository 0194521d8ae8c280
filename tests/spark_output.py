"""What Spark itself prints beside the output of a program."""

import re

_LOST_WORKER = re.compile(
    r"""Traceback \(most recent call last\):\n(?:  File "[^"]*/pyspark/daemon\.py", .*\n)+"""
    r"BrokenPipeError: .*\n"
)


def without_lost_workers(stderr: str) -> str:
    """Leave out what Spark's daemon prints when Spark gives a worker up while it starts.

    That happens on a busy machine. No line of it is this project's.
    """
    return _LOST_WORKER.sub("", stderr)
