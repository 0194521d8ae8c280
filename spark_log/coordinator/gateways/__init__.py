"""The registry of the gateways of a root: the state, its log, and the signs of life of gateways.

Gateways themselves change it (`spark_log.gateway.registry`); others only read it.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
