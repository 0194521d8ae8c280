"""Reading ahead for a consumer: the fetcher, its thread, and the buffer between them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
