"""``spark-log doctor``: what is wrong with a root, and what to do about it.

- `doctor`: runs the checks, each within a time limit; a check that fails is a finding.
- `check`, `finding`: what a check is, and what it finds.
- `examination`, `partition_examination`: the root and its partitions, each file read at most once.
- `checks/`: a file for each check.

It only reads, except for a scratch folder that it removes, and that only if it is told to.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
