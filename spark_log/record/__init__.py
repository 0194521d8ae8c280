"""Records in a segment file: Arrow schema, batch header, checksums; and Kafka's key hash."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
