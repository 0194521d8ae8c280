from .appender import Appender as Appender
from .appender import LogAppendInfo as LogAppendInfo
from .derived_files import MergeExecutor as MergeExecutor
from .follower_appender import CopiedSegment as CopiedSegment
from .follower_appender import DivergedReplicaError as DivergedReplicaError
from .follower_appender import FollowerAppender as FollowerAppender
