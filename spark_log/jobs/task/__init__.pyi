from .cleaning_task import CleaningTask as CleaningTask
from .gateway_task import GatewayTask as GatewayTask
from .mirroring_task import MirroringTask as MirroringTask
from .mirroring_task import tasks_by_partition as tasks_by_partition
from .partition_tasks import run_per_partition as run_per_partition
from .replication_task import ReplicationTask as ReplicationTask
