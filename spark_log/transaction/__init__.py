"""Transactions: the state log of a ``transactional.id``, its coordinator, and how it is found.

`TransactionMetadata` is the state after a prefix of the log, `changes` decides what follows,
`TransactionStateLog` appends it. `TransactionCoordinator` is what a client calls; `put_markers`
finishes a decided transaction in the partitions.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
