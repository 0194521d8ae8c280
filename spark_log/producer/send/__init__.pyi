from .batch_completer import BatchCompleter as BatchCompleter
from .client_throttle import ClientThrottle as ClientThrottle
from .partition_appender import PartitionAppender as PartitionAppender
from .producer_identity import ProducerIdentity as ProducerIdentity
from .producer_metrics import ProducerMetrics as ProducerMetrics
from .sender import Sender as Sender
from .sender_threads import SenderThreads as SenderThreads
