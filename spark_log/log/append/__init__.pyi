from .appender import AppendedBatches as AppendedBatches
from .appender import Appender as Appender
from .appender import LogAppendInfo as LogAppendInfo
from .follower_appender import CopiedSegment as CopiedSegment
from .follower_appender import DivergedReplicaError as DivergedReplicaError
from .follower_appender import FollowerAppender as FollowerAppender
from .merge_task import MergeExecutor as MergeExecutor
from .segment_stager import SegmentStager as SegmentStager
