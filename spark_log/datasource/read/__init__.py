"""Batch reads in Spark: offsets and input splits on the driver, records in tasks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
