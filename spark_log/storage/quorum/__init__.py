"""A store on an odd number of roots (`QuorumStore`), of which any minority may be lost."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
