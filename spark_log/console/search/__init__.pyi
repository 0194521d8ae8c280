from .expression import COLUMNS as COLUMNS
from .expression import Expression as Expression
from .expression import check_expression as check_expression
from .search import Search as Search
from .search import SearchProgress as SearchProgress
