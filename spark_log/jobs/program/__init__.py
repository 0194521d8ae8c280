"""Parts that the programs share: options, session, progress bar, report, the user's function."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
