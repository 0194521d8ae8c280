from .commits import CommitOperations as CommitOperations
from .polling import PollOperations as PollOperations
from .positions import PositionOperations as PositionOperations
from .subscription import SubscriptionOperations as SubscriptionOperations
from .topics import TopicOperations as TopicOperations
