"""Kafka's partition assignors as pure functions, one file each.

`assignor` returns one by its name. `cooperative_step` turns the target of ``cooperative-sticky``
into the partitions that members may have now. `assign_whole_stripes` asks an assignor, and chooses
among the partitions of topics with stripes.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
