"""Metadata: topics, partitions, brokers and configs, as a log of records.

A *broker* is a storage root with an id, not a process. Each of its replicas has a directory, whose
number counts how often the replica was copied anew.

`MetadataLog` appends the ``records``, and replays them into a `MetadataImage`; the ``checkpoint``
has the state at the log's end. What a change appends is decided by pure functions of the present
image: ``topics/``, ``partitions/``, ``brokers`` and ``configs``. `MetadataPartitionStates` gives a
partition's log its replicas; `ProducerIds` allocates producer ids; `ClientQuota` limits a client.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
