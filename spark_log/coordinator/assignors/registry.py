"""The assignors by their names in ``partition.assignment.strategy``."""

from __future__ import annotations

from difflib import get_close_matches

from spark_log.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from spark_log.coordinator.assignors.partition_assignor import Assignor
from spark_log.coordinator.assignors.range import RangeAssignor
from spark_log.coordinator.assignors.roundrobin import RoundRobinAssignor
from spark_log.coordinator.assignors.sticky import StickyAssignor
from spark_log.errors import InvalidConfigurationError

_EVERY: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
_BY_NAME = {each.name: each for each in _EVERY}


def assignor(name: str) -> Assignor:
    """Return the assignor with a name.

    Raises:
        InvalidConfigurationError: no assignor has this name.
    """
    if name not in _BY_NAME:
        nearest = next(iter(get_close_matches(name, _BY_NAME, 1)), None)
        raise InvalidConfigurationError(
            f"there is no assignor named {name!r}: partition.assignment.strategy is one of "
            f"{', '.join(_BY_NAME)}" + (f"; did you mean {nearest}?" if nearest else ""),
            key="partition.assignment.strategy",
            nearest=nearest,
        )
    return _BY_NAME[name]
