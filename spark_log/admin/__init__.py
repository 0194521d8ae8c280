"""`Admin`, by subject: brokers, topics, configs, quotas, offsets, records, producers, groups.

Each subject is a file with the methods that `Admin` has for it. `tables` turns answers of `Admin`
into Arrow tables; `offset_reset` works out new offsets for ``spark-log groups reset-offsets``.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
