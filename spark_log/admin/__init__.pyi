from .admin import Admin as Admin
from .cluster_access import map_requests as map_requests
from .group_descriptions import GroupDescription as GroupDescription
from .group_descriptions import GroupPartitionLag as GroupPartitionLag
from .group_descriptions import MemberDescription as MemberDescription
from .offset_reset import OffsetResetPlanner as OffsetResetPlanner
from .offset_reset import ResetPlan as ResetPlan
