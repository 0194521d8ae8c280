"""Records in a segment file: Arrow schema, batch header, checksums; and Kafka's key hash."""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
