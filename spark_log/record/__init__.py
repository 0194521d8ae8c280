"""Records and their batches: schema, header, checksums; control records; Kafka's hash of keys."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
