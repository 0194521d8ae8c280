"""Reads of the metadata that several threads share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from spark_log.cluster import Cluster
from spark_log.metadata import METADATA_LEASE_MS, MetadataImage

_GATHERING_SHARE: Final = 0.25
"""Share of the last lookup's duration for which a lookup waits for further calls, while another
lookup is running."""

_MIN_GATHERING_S: Final = 0.001
"""Minimum of this waiting time: on a disk a lookup ends sooner, and sharing it gains nothing."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """A lookup that calls share until it begins."""

    image: MetadataImage | None = None
    is_done: bool = False


class MetadataLookup:
    """Returns metadata that were read after the call; calls at about the same time share a lookup.

    The appends of a transaction end nearly at the same time. A lookup that began before an append
    ended is no answer for it. Therefore the first append reads the metadata at once, and the others
    share one lookup a moment later, which does not wait for the first one's answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Return a lookup of a root's metadata; nothing is read yet."""
        self._cluster = cluster
        self._changed = threading.Condition()
        self._gathering: _Lookup | None = None
        self._running = 0
        self._took_ms: float | None = None

    def recent_image(self) -> MetadataImage:
        """Return metadata that were the newest at some time within the last `METADATA_LEASE_MS`.

        On a local file system each call reads the metadata by itself: to wait for another thread
        takes longer than the lookup.

        Raises:
            SparkLogError: the metadata cannot be read.
        """
        if self._cluster.store.is_local:
            return self._cluster.image()
        return self._cluster.metadata.recent_image(METADATA_LEASE_MS) or self.image()

    def image(self) -> MetadataImage:
        """Return metadata that were read after the call began.

        Raises:
            SparkLogError: the metadata cannot be read. Other threads try by themselves.
        """
        with self._changed:
            while (shared := self._gathering) is not None:
                while not shared.is_done:
                    self._changed.wait()
                if shared.image is not None:
                    return shared.image
            lookup = self._gathering = _Lookup()
            if self._running:
                self._changed.wait_for(lambda: not self._running, self._gathering_s())
            self._gathering = None
            self._running += 1
        clock = self._cluster.clock
        began_ms = clock.monotonic_ms()
        try:
            lookup.image = self._cluster.image()
            return lookup.image
        finally:
            with self._changed:
                lookup.is_done = True
                self._running -= 1
                self._took_ms = clock.monotonic_ms() - began_ms
                self._changed.notify_all()

    def _gathering_s(self) -> float | None:
        if self._took_ms is None:
            return None
        return max(_MIN_GATHERING_S, self._took_ms / 1000 * _GATHERING_SHARE)
