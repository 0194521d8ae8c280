"""Transactions: the state log of a ``transactional.id``, its coordinator, and how it is found.

`TransactionMetadata` is the state after a prefix of the log, `changes` decides what follows,
`TransactionStateLog` appends it. `TransactionCoordinator` is what a client calls; `put_markers`
finishes a decided transaction in the partitions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
