"""The codec of Kafka's messages, generated from Kafka's own schemas.

`decode_request` and `encode_response` are all that a gateway needs; messages have Kafka's fields
as attributes (`Message`). Nothing outside of this folder knows how messages look as bytes.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
