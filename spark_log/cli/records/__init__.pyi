from .line_sender import TABLE_BYTES as TABLE_BYTES
from .line_sender import AppendedRecords as AppendedRecords
from .line_sender import LineSender as LineSender
from .partition_reader import PartitionRange as PartitionRange
from .partition_reader import read_partitions as read_partitions
from .subscription_ends import SubscriptionEnds as SubscriptionEnds
from .subscription_reader import read_subscription as read_subscription
