"""Checks of a log's sequence numbers by batch headers: those of a producer never go back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from spark_log.log.append import sequence_after
from spark_log.log.live_log import LiveSegment
from spark_log.record import NO_PRODUCER_ID, BatchHeader

_MAX_PRODUCERS: Final = 10_000
"""Producers that are remembered at most, those that appended last."""

_HALF: Final = 2**30
"""Half of all sequence numbers: what is less than this ahead is ahead, else it is behind."""


class Sequences:
    """Finds batches of an idempotent producer behind later ones of the same epoch.

    No append makes them: a repeat is recognised. So the file of another segment was put there, or
    a partition had forgotten the producer. It forgets no producer before
    ``producer.id.expiration.ms`` has passed, so only appends are compared that half of it lies
    between at most. Their times are known of plain segments alone.
    """

    def __init__(self, expiration_ms: int) -> None:
        """Start before the first header.

        Args:
            expiration_ms: ``producer.id.expiration.ms``.
        """
        self._forgettable_us = expiration_ms * 500
        self._last: dict[int, tuple[int, int, int, int]] = {}
        """Of each producer its epoch, the sequence that comes next, and offset and time of the
        last batch."""

    def replay(self, segment: LiveSegment, headers: Iterable[BatchHeader]) -> Iterator[str]:
        """Yield what is wrong with the next headers of the live log.

        Args:
            segment: of the headers.
            headers: sound headers, in offset order.
        """
        for header in headers:
            producer_id, epoch = header.producer_id, header.producer_epoch
            if producer_id == NO_PRODUCER_ID or header.is_control:
                continue
            last = self._last.pop(producer_id, None)
            if segment.name.generation:
                continue
            offset = segment.name.base_offset + header.base_offset_delta
            time_us = segment.file.modified_us
            following = sequence_after(header.base_sequence, header.record_count)
            self._last[producer_id] = epoch, following, offset, time_us
            if len(self._last) > _MAX_PRODUCERS:
                del self._last[next(iter(self._last))]
            if last is None or last[0] != epoch or time_us - last[3] >= self._forgettable_us:
                continue
            behind = sequence_after(last[1], -header.base_sequence)
            if 0 < behind < _HALF:
                yield (
                    f"the batch at offset {offset} has sequence {header.base_sequence} of producer "
                    f"{producer_id}, which comes before that of the batch at offset {last[2]}: one "
                    f"of the two files was put in another one's place. Restore it from a copy"
                )
