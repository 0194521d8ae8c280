"""Consumer groups: membership, generations, heartbeats and fenced commits, without a server."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
