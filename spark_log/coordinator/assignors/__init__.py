"""Kafka's partition assignors as pure functions, one file each.

`assignor` returns one by its name. `cooperative_step` turns the target of ``cooperative-sticky``
into the partitions that members may have now.
"""

from spark_log.coordinator.assignors.claims import claims_in_force
from spark_log.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
    cooperative_step,
)
from spark_log.coordinator.assignors.partition_assignor import (
    Assignor,
    Racks,
    Subscription,
    assignor,
)
from spark_log.coordinator.assignors.range import RangeAssignor
from spark_log.coordinator.assignors.roundrobin import RoundRobinAssignor
from spark_log.coordinator.assignors.sticky import StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "Racks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "assignor",
    "claims_in_force",
    "cooperative_step",
]
