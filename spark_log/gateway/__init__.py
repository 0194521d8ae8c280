"""The gateway: a server that speaks Kafka's protocol in front of a root.

A gateway holds nothing that cannot be lost, and any number of them may serve one root: leadership
is a hint, and the log stays correct whoever else appends to it.

- `server`, `connection`: sockets, frames, limits; the order of answers; `event_loop`.
- `gateway`: what the handlers of requests share.
- `requests/`: a file for each request.
- `protocol/`: Kafka's messages as bytes.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
