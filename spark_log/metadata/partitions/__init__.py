"""Decisions on partitions: pure functions from a metadata image to the records of a change.

`place_replicas` chooses the brokers of new partitions. ``in_sync_replicas`` lets replicas leave and
join, ``elections`` chooses leaders, ``reassignment`` moves replicas, ``broker_states`` follows a
change of a broker. All of them build their record with ``partition_change_builder``.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
