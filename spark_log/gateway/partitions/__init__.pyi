from .partition import FetchedPartition as FetchedPartition
from .partition import GatewayPartition as GatewayPartition
from .partitions import Partitions as Partitions
from .produced_batch import ProducedBatch as ProducedBatch
from .produced_batch import ProduceResult as ProduceResult
from .stripe import GatewayStripe as GatewayStripe
from .tail_watch import TailWatch as TailWatch
from .waiting_fetch import WaitingFetch as WaitingFetch
