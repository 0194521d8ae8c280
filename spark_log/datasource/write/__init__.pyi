from .batch_writer import LogBatchWriter as LogBatchWriter
from .partitioning import by_partition as by_partition
from .stream_writer import LogStreamWriter as LogStreamWriter
