"""The log of one partition: segments, indexes, and the append and read protocols."""

from spark_log.log.partition_log import LogAppendInfo, LogView, PartitionLog
from spark_log.log.segment import LogBatch, SegmentReader
from spark_log.log.segment_writer import SegmentWriter, StagedSegment

__all__ = [
    "LogAppendInfo",
    "LogBatch",
    "LogView",
    "PartitionLog",
    "SegmentReader",
    "SegmentWriter",
    "StagedSegment",
]
