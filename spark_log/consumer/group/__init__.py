"""A consumer's part in its group: membership, rebalances, and committed offsets."""

from spark_log.consumer.group.auto_commit import AutoCommit
from spark_log.consumer.group.committer import CommitCallback, Committer
from spark_log.consumer.group.consumer_coordinator import ConsumerCoordinator
from spark_log.consumer.group.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.group.group_membership import GroupMembership
from spark_log.consumer.group.membership import GroupAssignment, Membership
from spark_log.consumer.group.standalone_membership import StandaloneMembership

__all__ = [
    "AutoCommit",
    "CommitCallback",
    "Committer",
    "ConsumerCoordinator",
    "CoordinatorMetrics",
    "GroupAssignment",
    "GroupMembership",
    "Membership",
    "StandaloneMembership",
]
