from .completed_fetch import Fetch as Fetch
from .completed_fetch import FetchedRows as FetchedRows
from .fetcher import Fetcher as Fetcher
from .transaction_resolver import Resolve as Resolve
from .transaction_resolver import resolver as resolver
