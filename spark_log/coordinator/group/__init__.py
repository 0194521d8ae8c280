"""Membership in consumer groups, without a server: generations, heartbeats, and fenced commits.

The functions of `group_decisions` return the next record of a `Group`, and `GroupLog` appends it. A
`GroupMember` has a thread, which calls its `GroupCoordinator`. A *generation* is the number of a
change of members or partitions; a group's *fence* in the offsets table is the highest generation
that may have committed offsets.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
