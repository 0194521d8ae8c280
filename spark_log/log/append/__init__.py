"""Appends to a partition log: the append protocol, validation, producer state, derived files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
