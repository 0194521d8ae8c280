"""The storage port (`Store`) and its backends. Nothing outside of this package touches files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
