"""Work on a whole cluster: samples for ``top``, and the plans of ``reassign-partitions``."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
