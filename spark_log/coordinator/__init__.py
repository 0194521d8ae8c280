"""Consumer groups: membership (`group`), committed offsets (`offsets`), assignors (`assignors`).

`OffsetsTable` and `CommittedOffset` are imported on first use: they import pyarrow.parquet.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_log.coordinator.offsets.rows import CommittedOffset
    from spark_log.coordinator.offsets.table import OffsetsTable

_MODULES = {
    "CommittedOffset": "spark_log.coordinator.offsets.rows",
    "OffsetsTable": "spark_log.coordinator.offsets.table",
}
"""Public names imported on first use, by module."""

__all__ = ["CommittedOffset", "OffsetsTable"]


def __getattr__(name: str) -> object:
    """Import what is asked for the first time."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
