from .completed_fetch import Fetch as Fetch
from .completed_fetch import FetchedRows as FetchedRows
from .fetcher import Fetcher as Fetcher
