"""A store on an odd number of roots (`QuorumStore`), of which any minority may be lost.

Each root is a *member*. `Membership` is the list of the members, each as a `Voter`; `Members` calls
their stores. A `Proposal` decides the content of one name; `read_repair` finds a file; founding and
`reconfiguration` make and change the list.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
