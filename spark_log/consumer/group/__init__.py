"""A consumer's part in its group: membership, rebalances, and committed offsets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
