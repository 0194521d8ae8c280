"""Looks at the metadata for several threads at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from spark_log.metadata import METADATA_LEASE_MS, Cluster, MetadataImage

_GATHERING_SHARE: Final = 0.25
"""How long a lookup waits for further calls while another one runs, as a share of its time."""

_MIN_GATHERING_S: Final = 0.001
"""It waits no shorter than this: on a disk a lookup ends sooner, and two at once gain nothing."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """One lookup, which has not begun yet; calls that come until then share it."""

    image: MetadataImage | None = None
    is_done: bool = False


class MetadataLookup:
    """Returns metadata that was read after the call; calls that come together share a lookup.

    The appends of a transaction end nearly together. A lookup that began before an append ended
    says nothing about it, so the first of them looks at once, and the others a moment later, all by
    one lookup that does not wait for the first one's answer.
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

        On a mapped file system, where a look costs next to nothing: as of a moment after the call
        began.

        Raises:
            SparkLogError: they cannot be read. Other threads try for themselves.
        """
        if self._cluster.store.is_mapped:
            return self.image()
        return self._cluster.metadata.recent_image(METADATA_LEASE_MS) or self.image()

    def image(self) -> MetadataImage:
        """Return the metadata as of a moment after the call began.

        Raises:
            SparkLogError: they cannot be read. Other threads try for themselves.
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
