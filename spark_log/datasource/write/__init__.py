"""Writes from Spark, batch and streaming: columns, partitions, and the appends of a task."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
