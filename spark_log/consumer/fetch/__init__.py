"""Reading ahead for a consumer: the fetcher, its thread, and the buffer between them."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
