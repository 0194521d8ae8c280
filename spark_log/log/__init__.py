"""The log of one partition.

- `partition_log`: the facade; `log_reader` and `append` are its two halves.
- `partition_directory`, `live_log`, `file_names`: the files, and which of them are the log.
- `segment`: one segment file with its two indexes.
- `append`: the append protocol, producer state, validation, tail merges.
- `snapshot`: summaries of segments and the producer state, up to an offset.
- `tail_view`, `probe_interval`: following the log's end.
- `log_start`, `witness`: moving the log start offset; noticing that all files are gone.
- `clean`, `verify`: retention, merges and compaction; checks of all of the above.
"""

from spark_log.log.append.appender import LogAppendInfo
from spark_log.log.append.producer_state import ProducerAppend
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment.reader import LogBatch, SegmentReader
from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.log.segment.writer import SegmentWriter

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
