"""One segment of a log: its file, its reader and writer, and its offset and time index."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
