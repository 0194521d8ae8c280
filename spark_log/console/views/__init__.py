"""The pages of the console: their parameters, answers, and functions that read the root."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
