"""Builds the two indexes of a segment from its batch headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_log.log.segment.offset_index import offset_index_bytes
from spark_log.log.segment.time_index import time_index_bytes
from spark_log.record import BatchHeader

DEFAULT_INTERVAL_BYTES: Final = 4096
"""Default of ``index.interval.bytes``, used if the topic's setting is not known."""


class IndexBuilder:
    """Builds an offset index and a time index, one Arrow batch after the other.

    It needs batch headers alone. A missing index is therefore rebuilt without decoding records, and
    with the same interval the result is the same, byte for byte.
    """

    def __init__(self, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> None:
        """Begin with empty indexes.

        Args:
            interval_bytes: bytes of log between two entries (``index.interval.bytes``).
        """
        self._interval_bytes = interval_bytes
        self._indexed_up_to = 0
        self._latest: tuple[int, int] | None = None
        self._has_batches = False
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []

    def add(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Add the next Arrow batch.

        Args:
            position: position of the batch's block in the file.
            headers: all batch headers of the Arrow batch.
        """
        if self._has_batches and position - self._indexed_up_to > self._interval_bytes:
            self._offsets.append((headers[0].base_offset_delta, position))
            if self._latest is not None and self._latest[0] > self._last_time():
                self._times.append(self._latest)
            self._indexed_up_to = position
        self._has_batches = True
        for header in headers:
            if header.is_control or not header.record_count:
                continue
            if self._latest is None or header.max_timestamp_us > self._latest[0]:
                self._latest = header.max_timestamp_us, header.base_offset_delta

    def files(self, append_id: str) -> tuple[bytes, bytes]:
        """Return the content of the offset index file and of the time index file.

        Each is empty if it has no entries.

        Args:
            append_id: the segment's append id.
        """
        offset_index = offset_index_bytes(self._offsets, append_id)
        return offset_index, time_index_bytes(self._times, offset_index)

    def _last_time(self) -> float:
        return self._times[-1][0] if self._times else float("-inf")
