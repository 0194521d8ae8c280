"""Verification of a partition log: each file of its directory, and the log that they make up."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
