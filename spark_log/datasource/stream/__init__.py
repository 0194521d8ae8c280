"""Streaming reads in Spark: micro-batches, offsets, limits, lag, and progress in a group."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
