"""The user at a terminal: one-line errors and exit statuses, signals, keys, questions, examples."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
