"""Search of a topic: by key, by header, or by a SQL expression that duckdb evaluates."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
