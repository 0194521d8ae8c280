"""The transactions of Kafka's clients, on the log's own transactions (`spark_log.transaction`).

Only KIP-890's second protocol, in which each transaction has an epoch of its own, as here.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
