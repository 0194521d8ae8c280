"""Kafka's partition assignors as pure functions, one file each.

`assignor` returns one by its name. `cooperative_step` turns the target of ``cooperative-sticky``
into the partitions that members may have now.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
