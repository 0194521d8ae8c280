from .finding import Finding as Finding
from .finding import FindingKind as FindingKind
from .finding import Severity as Severity
from .verifier import Verifier as Verifier
