"""The quotas of clients: how long each has to pause after what it has sent and fetched."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from spark_log.metadata import ClientQuota, MetadataImage

_MAX_CLIENTS: Final = 10_000
"""Client ids whose use is remembered; the one that was idle longest is forgotten."""


class ClientQuotas:
    """Bytes per second of each client id, for appends and fetches (KIP-13).

    The limits are those of the root. Each gateway counts what passes through it.
    """

    def __init__(self) -> None:
        """Return quotas of which nothing is used."""
        self._quotas: OrderedDict[tuple[str, str], ClientQuota] = OrderedDict()

    def throttle_ms(
        self, image: MetadataImage, kind: str, client_id: str, size_bytes: int, now_ms: float
    ) -> int:
        """Record bytes; return the time for which the client has to pause.

        Args:
            image: the metadata, which have the limits.
            kind: ``producer`` or ``consumer``.
            client_id: the client's id.
            size_bytes: the bytes.
            now_ms: monotonic time.
        """
        if not image.client_overrides:
            return 0
        limits = image.client_quota(client_id)
        rate = limits.producer_byte_rate if kind == "producer" else limits.consumer_byte_rate
        quota = self._quotas.setdefault((kind, client_id), ClientQuota())
        self._quotas.move_to_end((kind, client_id))
        if len(self._quotas) > _MAX_CLIENTS:
            self._quotas.popitem(last=False)
        quota.change(rate)
        return round(quota.record(size_bytes, now_ms))
