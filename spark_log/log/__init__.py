"""The log of one partition: segments, indexes, and the append and read protocols."""

from spark_log.log.appender import LogAppendInfo
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.producer_state import ProducerAppend
from spark_log.log.segment import LogBatch, SegmentReader
from spark_log.log.segment_writer import SegmentWriter, StagedSegment

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
