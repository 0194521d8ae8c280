from .all_views import VIEWS as VIEWS
from .reset import Reset as Reset
from .reset import ResetParameters as ResetParameters
from .reset import execute_reset as execute_reset
from .search import SearchParameters as SearchParameters
from .search import open_search as open_search
