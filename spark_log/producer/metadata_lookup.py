"""Looks at the metadata for several threads at once."""

from __future__ import annotations

import threading

from spark_log.metadata import Cluster, MetadataImage


class MetadataLookup:
    """Returns metadata that was read after the call; calls that overlap share a lookup.

    The metadata log is read by one thread at a time. Without sharing, the appends of a transaction
    that end together would wait for one request after the other.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Return a lookup of a root's metadata; nothing is read yet."""
        self._cluster = cluster
        self._ended = threading.Condition()
        self._is_reading = False
        self._begun = 0
        self._image: tuple[int, MetadataImage] | None = None

    def image(self) -> MetadataImage:
        """Return the metadata as of a moment after the call began.

        Raises:
            SparkLogError: it cannot be read. Other threads try for themselves.
        """
        with self._ended:
            needed = self._begun + 1
            while self._is_reading:
                self._ended.wait()
                if self._image is not None and self._image[0] >= needed:
                    return self._image[1]
            self._is_reading = True
            self._begun += 1
            number = self._begun
        image = None
        try:
            image = self._cluster.image()
        finally:
            with self._ended:
                self._is_reading = False
                if image is not None:
                    self._image = number, image
                self._ended.notify_all()
        return image
