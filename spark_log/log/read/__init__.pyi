from .log_reader import MAX_READ_BYTES as MAX_READ_BYTES
from .log_reader import IsolationLevel as IsolationLevel
from .log_reader import LogReader as LogReader
from .probe_interval import ProbeInterval as ProbeInterval
from .segment_batches import NewerLeaderEpochError as NewerLeaderEpochError
from .segment_batches import Selection as Selection
from .segment_batches import read_batches as read_batches
from .tail_view import TailView as TailView
