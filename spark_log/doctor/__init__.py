"""``spark-log doctor``: finds problems of a root, and gives a remedy for each.

- `doctor`: runs the checks, each within a time limit; a check that fails is a finding.
- `check`, `finding`: the base classes of checks, and their findings.
- `examination`, `partition_examination`: the root and its partitions, each file read at most once.
- `checks/`: a file for each check.

The doctor only reads; with ``--probe-storage`` it also writes into a scratch folder, which it
removes again.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
