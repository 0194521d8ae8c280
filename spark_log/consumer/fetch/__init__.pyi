from .completed_fetch import Fetch as Fetch
from .completed_fetch import FetchedRows as FetchedRows
from .fetch_loop import Resolve as Resolve
from .fetcher import Fetcher as Fetcher
