"""Membership in consumer groups, without a server: generations, heartbeats, and fenced commits."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
