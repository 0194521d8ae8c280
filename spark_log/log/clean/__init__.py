"""Cleaning of a partition log: retention, merging, compaction, and deletion of spent files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
