"""The log of one partition: segments, indexes, and the append and read protocols."""

from spark_log.log.append.appender import LogAppendInfo
from spark_log.log.append.producer_state import ProducerAppend
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment.reader import LogBatch, SegmentReader
from spark_log.log.segment.writer import SegmentWriter, StagedSegment

__all__ = [
    "LogAppendInfo",
    "LogBatch",
    "LogView",
    "PartitionLog",
    "ProducerAppend",
    "SegmentReader",
    "SegmentWriter",
    "StagedSegment",
]
