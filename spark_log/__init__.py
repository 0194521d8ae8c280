"""spark-log: Kafka's log on shared storage, with no server.

Every public name can be imported from here, and is loaded on first use: a process that only
produces loads no consumer. ``__init__.pyi`` lists the names. The import starts no JVM and imports
no pyspark.
"""

from spark_log.util import collector_paused
from spark_log.util.exports import attach_stub

__version__ = "0.3.0"

_load, __dir__, _names = attach_stub(__name__)
# `spark_log.types` is an attribute, but `from spark_log import *` must not hide Python's `types`.
__all__ = [name for name in _names if name not in ("errors", "types")]


def __getattr__(name: str) -> object:
    with collector_paused(makes_old=True):
        found = globals()[name] = _load(name)
    return found
