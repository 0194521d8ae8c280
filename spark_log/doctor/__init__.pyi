from .checks import CHECKS as CHECKS
from .doctor import OWN_PROBLEMS as OWN_PROBLEMS
from .doctor import CheckStatus as CheckStatus
from .doctor import Doctor as Doctor
from .finding import Finding as Finding
from .finding import Problem as Problem
from .finding import Severity as Severity
from .limits import Limits as Limits
