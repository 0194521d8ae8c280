from .finding import Finding as Finding
from .finding import FindingKind as FindingKind
from .finding import Severity as Severity
from .replicas import ReplicaDifference as ReplicaDifference
from .replicas import first_difference as first_difference
from .stray_files import is_partition_file as is_partition_file
from .verifier import Verifier as Verifier
