"""Committed offsets: the Delta table ``__consumer_offsets``, its commits, expiry and repair."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
