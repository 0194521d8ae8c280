"""Consumer groups without a server: membership, generations, heartbeats, and a member's fenced commits."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
