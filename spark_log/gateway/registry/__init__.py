"""The gateways of a root, and the choice of one of them for each partition and group.

`RegistryLog` has the state, in a log of its own with conditional appends. `RegistryMember` keeps
one gateway in it, and removes those that stopped counting. `leaders` chooses a gateway for each
partition and group.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
