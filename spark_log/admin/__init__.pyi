from .admin import Admin as Admin
from .admin import share_cluster as share_cluster
from .offset_reset import OffsetResetPlanner as OffsetResetPlanner
from .offset_reset import ResetPlan as ResetPlan
from .offsets_sampler import OffsetsSample as OffsetsSample
from .offsets_sampler import OffsetsSampler as OffsetsSampler
from .offsets_sampler import partition_keys as partition_keys
from .partition_sampler import PartitionSample as PartitionSample
