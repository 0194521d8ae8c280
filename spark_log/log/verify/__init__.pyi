from .finding import LogFinding as LogFinding
from .finding import LogFindingKind as LogFindingKind
from .finding import LogSeverity as LogSeverity
from .replicas import first_difference as first_difference
from .stray_files import is_partition_file as is_partition_file
from .stripe import StripeVerifier as StripeVerifier
from .verifier import Verifier as Verifier
