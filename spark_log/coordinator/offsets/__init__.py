"""Committed offsets: the Delta table ``__consumer_offsets``, and who may commit to it.

`OffsetsTable` commits and fetches. A consumer without membership commits by `StandaloneCommits`, a
transaction by `TransactionalOffsets`; the commits of a member are in `spark_log.coordinator.group`.
Maintenance, expiry and repair read the logs of groups.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
