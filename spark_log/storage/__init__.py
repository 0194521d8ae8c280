"""The storage port (`Store`) and its backends. Nothing outside of this package touches files."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
