"""The code of the scripts in ``jobs/``: group jobs, transforms, reprocessing, cleaning, mirrors."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
