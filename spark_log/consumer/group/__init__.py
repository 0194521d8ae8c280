"""A consumer's part in its group: membership, rebalances, and committed offsets."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
