"""`CopiedPartition`: the result of copying one partition of a root to another root."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """The result of copying a partition.

    Attributes:
        topic_partition: the partition.
        copied_bytes: the size of the segments that were copied, or the partition's part of the
            objects of its stripe.
        copied_segments: the number of these segments and objects.
        end_offset: the log end offset of the target now.
        lag: the number of readable offsets before the source's last stable offset that are not
            copied.
    """

    topic_partition: TopicPartition
    copied_bytes: int
    copied_segments: int
    end_offset: int
    lag: int
