from .auto_commit import AutoCommit as AutoCommit
from .committer import CommitCallback as CommitCallback
from .consumer_coordinator import ConsumerCoordinator as ConsumerCoordinator
from .consumer_group import ConsumerGroup as ConsumerGroup
