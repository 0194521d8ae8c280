"""Transactions of a producer: the state, the identity of its appends, and the public calls.

`TransactionManager` is the state alone. The log of transactions is in `spark_log.transaction`.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
