"""Consumer groups: membership (`group`), committed offsets (`offsets`), assignors (`assignors`).

`gateways` has the registry of the gateways of a root.

`OffsetsTable` and `CommittedOffset` are imported on first use: they import pyarrow.parquet.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
