"""How commands print: tables, JSON, records, dumps of segments and indexes, progress bars."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
