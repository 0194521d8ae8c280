"""The handlers of requests: a file for each request of Kafka's protocol.

A file has ``API``, the versions that are answered, and ``async def handle(gateway, context,
request)``, which returns the response, or None if the client expects none. `table` has all of them.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
