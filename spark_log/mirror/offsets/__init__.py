"""Offset syncs: which offset of Kafka is which offset of the log, as MirrorMaker 2 keeps them.

- `offset_syncs`: the runs of a partition's offsets; `offset_sync_topic`: the topic with the runs.
- `task_generation`: the tasks that may write, stored in the same topic.
- `group_translation`: committed offsets of groups, translated by the syncs.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
