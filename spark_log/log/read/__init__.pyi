from .log_reader import MAX_READ_BYTES as MAX_READ_BYTES
from .log_reader import IsolationLevel as IsolationLevel
from .log_reader import LogReader as LogReader
from .log_reader import NewerLeaderEpochError as NewerLeaderEpochError
from .log_reader import list_aborted as list_aborted
from .log_reader import read_batches as read_batches
from .probe_interval import ProbeInterval as ProbeInterval
from .tail_view import TailView as TailView
