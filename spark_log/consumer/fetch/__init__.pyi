from .completed_fetch import BatchSlice as BatchSlice
from .completed_fetch import Fetch as Fetch
from .fetcher import Fetcher as Fetcher
from .transaction_resolver import Resolve as Resolve
from .transaction_resolver import resolver as resolver
