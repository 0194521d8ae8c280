"""The checks of the doctor, one file for each, and `find_checks`, which returns them by name."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
