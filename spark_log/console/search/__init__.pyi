from .expression import COLUMNS as COLUMNS
from .expression import Expression as Expression
from .search import Search as Search
from .search import SearchProgress as SearchProgress
