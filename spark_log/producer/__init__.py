"""The producer client: `Producer`, `AIOProducer`, their futures and interceptors."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
