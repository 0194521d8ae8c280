"""Records that commands read and send: partitions in turn, subscriptions, lines from stdin."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
