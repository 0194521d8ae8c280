"""`Admin`, the client that administers a root, and samples of a root's offsets.

`Admin` has the methods and their docstrings. What they do is in a file for each subject, as
functions of an opened `spark_log.cluster.Cluster`: ``brokers``, ``topics``, ``configs`` and so on;
``groups`` has a class, which keeps the offsets table open. ``_runtime`` opens the root and limits
the time of calls, and ``tables`` converts results to Arrow tables.

`OffsetResetPlanner` computes new offsets for ``spark-log groups reset-offsets``. `OffsetsSampler`
reads ends of partitions and committed offsets repeatedly, for monitoring.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
