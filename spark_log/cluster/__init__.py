"""A cluster: its root and the roots of its brokers, opened as one; and work on all partitions.

- `Cluster` is an opened root: its metadata, and the logs of its partitions on all brokers.
  ``meta_properties`` is the file that tells which root it is, ``root_creation`` creates a root,
  ``broker_stores`` opens the roots of the other brokers, ``broker_registration`` adds a broker.
- ``cleaner`` and ``verifier`` work on each partition in turn, ``conversion`` on several of a topic
  that is a table. ``topic_tables`` has the tables of topics. ``topic_deletion``,
  ``stray_replicas`` and ``orphans`` deal with directories that no partition uses any more.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
