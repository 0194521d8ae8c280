"""Holds a producer to the quota of its client id, ``producer_byte_rate`` (KIP-13, KIP-219)."""

from __future__ import annotations

import logging
from typing import Final

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import SparkLogError
from spark_log.metadata import UNLIMITED, ClientQuota, MetadataImage
from spark_log.producer.batch import Accumulator

_log = logging.getLogger(__name__)

_MIN_REFRESH_MS: Final = 1_000
"""Minimum time between two reads of the quota while the client is throttled."""


class ClientThrottle:
    """Mutes the accumulator after appends that exceeded the quota. Safe to use from any thread.

    No broker exists that could mute the client's channel: the client keeps the quota by itself.
    While it is muted, no partition is appended to; waiting records keep their order and their
    ``delivery.timeout.ms``.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        cluster: Cluster,
        config: ProducerConfig,
        client_id: str,
    ) -> None:
        """Begin without a quota; the first metadata image sets it."""
        self._accumulator = accumulator
        self._cluster = cluster
        self._client_id = client_id
        self._known: tuple[MetadataImage | None, int] = None, UNLIMITED
        self._config = config
        self._clock = cluster.clock
        self._quota = ClientQuota()
        self._refresh_due_ms = 0.0

    @property
    def max_append_bytes(self) -> int:
        """Maximum size of one append, so that no pause is much longer than a second."""
        return self._quota.most_bytes

    def update(self, image: MetadataImage) -> None:
        """Set the quota from the metadata. Takes the accumulator's lock."""
        rate = self._bytes_per_second(image)
        with self._accumulator.lock:
            if rate != self._quota.bytes_per_second:
                self._quota.change(rate)
                self._mute(self._clock.monotonic_ms())

    def record(self, size_bytes: int, image: MetadataImage, now_ms: float) -> float:
        """Count an append, and mute the accumulator if it exceeded the quota. Takes its lock.

        Returns:
            The pause in milliseconds.
        """
        rate = self._bytes_per_second(image)
        with self._accumulator.lock:
            self._quota.change(rate)
            throttle_ms = self._quota.record(size_bytes, now_ms)
            self._mute(now_ms)
        if throttle_ms:
            _log.debug("throttled for %d ms: producer_byte_rate is %d", throttle_ms, rate)
        return throttle_ms

    def check(self) -> bool:
        """Return whether the client has to wait; read its quota again from time to time.

        Takes the accumulator's lock. Called by the thread that took a partition, not by the leader:
        the storage may keep the caller waiting.
        """
        now_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            if not self._quota.is_throttled(now_ms):
                return False
            if now_ms < self._refresh_due_ms:
                return True
            rate = self._quota.bytes_per_second
        try:
            rate = self._bytes_per_second(self._cluster.image())
        except (SparkLogError, OSError) as error:
            _log.info("the quota cannot be read, and stays as it was: %s", error)
        with self._accumulator.lock:
            self._quota.change(rate)
            self._mute(now_ms)
            return self._quota.is_throttled(now_ms)

    def describe(self) -> str:
        """Return the quota as the end of an error message; empty if the client is not throttled."""
        if not self._quota.is_throttled(self._clock.monotonic_ms()):
            return ""
        rate = self._quota.bytes_per_second
        return f"; the client may append {rate} bytes a second (producer_byte_rate)"

    def _bytes_per_second(self, image: MetadataImage) -> int:
        """Return the client's ``producer_byte_rate`` in a metadata image."""
        known_image, rate = self._known
        if known_image is not image:  # a new image is made only for a change
            rate = image.client_quota(self._client_id).producer_byte_rate
            self._known = image, rate
        return rate

    def _mute(self, now_ms: float) -> None:
        """Mute the accumulator until the pause ends, or the quota is to be read again."""
        age_ms = max(self._config.metadata_max_age_ms, _MIN_REFRESH_MS)
        self._refresh_due_ms = now_ms + age_ms
        until_ms = min(self._quota.throttled_until_ms, self._refresh_due_ms)
        self._accumulator.ready.mute_until(until_ms)
