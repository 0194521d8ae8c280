"""The transactions of Kafka's clients, on the log's own transactions (`spark_log.transaction`).

In KIP-890's second protocol each transaction has an epoch of its own, as here. Clients of the first
one keep the identity that `InitProducerId` gave them: their requests are translated.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
