"""Consumer groups: who has what (`GroupMember`), and committed offsets (`OffsetsTable`)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_log.coordinator.offsets.rows import CommittedOffset
    from spark_log.coordinator.offsets.table import OffsetsTable

_MODULES = {
    "CommittedOffset": "spark_log.coordinator.offsets.rows",
    "OffsetsTable": "spark_log.coordinator.offsets.table",
}
"""Where that lies which is imported late: `Admin` is here too, and most never ask it for groups."""

__all__ = ["CommittedOffset", "OffsetsTable"]


def __getattr__(name: str) -> object:
    """Import what is asked for the first time."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
