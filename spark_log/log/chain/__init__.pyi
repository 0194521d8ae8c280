from .partition_state import NO_LEADER as NO_LEADER
from .partition_state import PartitionState as PartitionState
from .partition_state import PartitionStates as PartitionStates
from .replica_chain import ReplicaChain as ReplicaChain
from .replica_fetcher import LeaderFailedError as LeaderFailedError
from .replica_fetcher import ReplicaFetcher as ReplicaFetcher
from .replicated_log import ReplicatedLog as ReplicatedLog
