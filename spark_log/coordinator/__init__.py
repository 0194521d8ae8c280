"""Consumer groups: membership (`group`), committed offsets (`offsets`), assignors (`assignors`).

`OffsetsTable` and `CommittedOffset` are imported on first use: they import pyarrow.parquet.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
