"""Snapshots of a partition: summaries of its segments and its producer state, up to an offset."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
