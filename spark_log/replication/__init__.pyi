from .catching_up import CatchUp as CatchUp
from .catching_up import Replicator as Replicator
from .cluster_replicator import ClusterReplicator as ClusterReplicator
from .cluster_replicator import ReplicatedPartition as ReplicatedPartition
from .cluster_replicator import TopicPartitionReplica as TopicPartitionReplica
from .cluster_replicator import out_of_sync_replicas as out_of_sync_replicas
from .cluster_replicator import replication_throttle as replication_throttle
