"""A gateway's part in the registry, and the choice of a gateway for each partition and group.

`GatewayRegistryLog` of `spark_log.coordinator` has the state. `RegistryMember` keeps one gateway in
it, and removes those that stopped counting. `leaders` chooses a gateway for each partition and
group.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
