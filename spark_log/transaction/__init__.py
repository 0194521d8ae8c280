"""Transactions: the state log of a ``transactional.id``, its coordinator, and its cleaner.

`TransactionMetadata` is the state after a prefix of the log. The functions of `decisions` return
the next record, and `TransactionStateLog` appends it. Clients call `TransactionCoordinator`;
`put_markers` puts the markers of a decided transaction into its partitions.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
