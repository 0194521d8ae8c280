"""The pages of the console: what each is asked, and how its answer is read from the root."""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
