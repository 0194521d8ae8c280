"""Transactions: the state log of a ``transactional.id``, and how it is found.

`TransactionMetadata` is the state after a prefix of the log, `changes` decides what follows,
`TransactionStateLog` appends it. No producer and no reader uses it yet.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
