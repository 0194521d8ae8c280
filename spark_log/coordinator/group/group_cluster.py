"""The port to a cluster that a group needs."""

from __future__ import annotations

from typing import Protocol

from spark_log.metadata import MetadataImage
from spark_log.storage import Store
from spark_log.util import Clock, SuppressedErrors


class GroupCluster(Protocol):
    """The part of `Cluster` that a group needs."""

    @property
    def store(self) -> Store:
        """The files of the root."""

    @property
    def clock(self) -> Clock:
        """The clock that measures time."""

    @property
    def suppressed(self) -> SuppressedErrors:
        """The counts of failures that do not stop a caller."""

    def image(self) -> MetadataImage:
        """Return the present metadata."""
