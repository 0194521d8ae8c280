"""Metadata: topics, partitions and configs, replayed from the metadata log.

`Cluster` opens a root. `topics/` creates and deletes topics; `ClusterCleaner` and `ClusterVerifier`
clean and verify all partitions of a root. `StateLog` is the base of the logs of groups and of
transactional ids.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
