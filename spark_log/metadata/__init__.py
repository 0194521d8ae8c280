"""Metadata: topics, partitions and configs, replayed from the metadata log.

`Cluster` opens a root. `topics/` creates and deletes topics; `ClusterCleaner` and `ClusterVerifier`
clean and verify all partitions of a root. `StateLog` is the base of the logs of groups and of
transactional ids.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
