"""Checks of a log's sequence numbers by batch headers: a producer's never go back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from spark_log.log.files import LiveSegment
from spark_log.record import NO_PRODUCER_ID, BatchHeader, sequence_after

_MAX_PRODUCERS: Final = 10_000
"""Maximum number of producers that are remembered: the last ones that appended."""

_HALF: Final = 2**30
"""Half of all sequence numbers: of two numbers, one is later if it is less than this ahead."""


class Sequences:
    """Finds batches of an idempotent producer after batches with later sequence numbers.

    Appends do not make such batches, because a repeat is recognised. They show that the file of
    another segment was put into this place, or that the partition had forgotten the producer. No
    producer is forgotten before ``producer.id.expiration.ms`` has passed, so two appends are
    compared only if less than half of it lies between them. The times of appends are known only in
    plain segments. Batches of different epochs are not compared.
    """

    def __init__(self, expiration_ms: int) -> None:
        """Start before the first header.

        Args:
            expiration_ms: ``producer.id.expiration.ms``.
        """
        self._forgettable_us = expiration_ms * 500
        self._last: dict[int, tuple[int, int, int, int]] = {}
        """Epoch, next sequence number, and offset and time of the last batch, by producer id."""

    def replay(self, segment: LiveSegment, headers: Iterable[BatchHeader]) -> Iterator[str]:
        """Yield the problems of the next headers of the live log.

        Args:
            segment: the segment that the headers are from.
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
