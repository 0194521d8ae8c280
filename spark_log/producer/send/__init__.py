"""The sender: it appends the waiting batches to their logs, and retries (Kafka's ``Sender``).

`Sender` decides, `PartitionAppender` makes one attempt of an append, and `SenderThreads` run both.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
