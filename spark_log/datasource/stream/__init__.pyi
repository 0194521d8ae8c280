from .lag import PartitionLag as PartitionLag
from .lag import lag_of as lag_of
from .lag import metrics_of as metrics_of
from .read_limits import count_offsets as count_offsets
from .read_limits import limit_rate as limit_rate
from .stream_reader import LogStreamReader as LogStreamReader
