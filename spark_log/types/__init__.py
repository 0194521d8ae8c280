"""Values that clients take and return: small, immutable, with Kafka's and kafka-python's names.

A file for each subject: `records`, `offsets`, `topics`, `configs`, `brokers`, `groups` and
`transactions`.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
