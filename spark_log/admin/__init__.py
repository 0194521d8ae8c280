"""`Admin`, by subject: brokers, topics, configs, quotas, offsets, records, producers, groups.

Each subject is a file with the methods that `Admin` has for it. `tables` converts results of
`Admin` to Arrow tables; `offset_reset` computes new offsets for ``spark-log groups reset-offsets``.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
