from .all_checks import CHECKS as CHECKS
from .all_checks import find_checks as find_checks
