from .fetch_positions import FetchPositions as FetchPositions
from .offset_fetcher import OffsetFetcher as OffsetFetcher
from .offset_reset import start_offset as start_offset
from .subscription_state import SubscriptionState as SubscriptionState
from .subscription_state import checked_partitions as checked_partitions
from .subscription_state import checked_times_us as checked_times_us
from .subscription_state import shown_partitions as shown_partitions
from .subscription_state import shown_positions as shown_positions
