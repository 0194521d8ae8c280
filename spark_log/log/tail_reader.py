"""Following a log: waiting at its end for what is appended next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment.log_batch import LogBatch
from spark_log.storage import Store

_WAITED_SHARE = 0.1
"""The next look comes when a tenth of the time waited so far has passed: so a record is late by a
tenth of the time that it took to come, and looking costs little however long nothing comes."""

_PROBE_SHARE = 0.2
"""So much a further look adds to the longest pause: about its part of waking up and looking."""


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """How long to wait between two partitions for the next segment, milliseconds."""

    min_ms: float
    max_ms: float

    @staticmethod
    def of(store: Store) -> ProbeInterval:
        """Return `LOCAL_PROBES` or `REMOTE_PROBES`, as the store is."""
        return LOCAL_PROBES if store.is_mapped else REMOTE_PROBES

    def pause_ms(self, waited_ms: float, partitions: int = 1) -> float:
        """Return how long to wait before the next look.

        Args:
            waited_ms: for how long nothing has come.
            partitions: how many partitions are looked at each time: the more, the longer may it be.
        """
        max_ms = self.max_ms * (1 + _PROBE_SHARE * (partitions - 1))
        return min(max(self.min_ms, waited_ms * _WAITED_SHARE), max_ms)


LOCAL_PROBES = ProbeInterval(0.2, 2.5)
"""A look is a system call that fails: 400 of them a second take 1 % of a core."""

REMOTE_PROBES = ProbeInterval(10.0, 100.0)
"""A look is a request that costs money."""


class TailReader:
    """Reads a partition from an offset on, and waits at the end for more.

    Nothing is missed and nothing comes twice: the next look is for the name that the next segment
    must have, and the log is listed again before that name can have been freed (`TailView`).

    Attributes:
        position: the offset of the next record to be read; may be set, to seek.
    """

    def __init__(
        self,
        log: PartitionLog,
        offset: int,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        probes: ProbeInterval | None = None,
    ) -> None:
        """Begin at an offset; touches nothing.

        Args:
            log: the partition's; for this reader alone.
            offset: where to begin.
            columns: see `SegmentReader.read`.
            check_crcs: see `SegmentReader.read`.
            probes: None for `LOCAL_PROBES` or `REMOTE_PROBES`, as the store is.
        """
        self.position = offset
        self._log = log
        self._columns = columns
        self._check_crcs = check_crcs
        self._probes = probes or ProbeInterval.of(log.files.store)

    def fetch(self, max_bytes: int = 52_428_800, timeout_ms: float = 0) -> list[LogBatch]:
        """Return the next batches, up to about ``max_bytes``; wait for one if there is none.

        Args:
            max_bytes: see `PartitionLog.fetch`.
            timeout_ms: how long to wait; then the answer is empty.

        Raises:
            OffsetOutOfRangeError: retention passed the position; with the valid range.
            CorruptRecordError: with file and position.
        """
        clock = self._log.clock
        began_ms = clock.monotonic_ms()
        while True:
            batches, self.position = self._log.fetch_from(
                self.position, max_bytes, columns=self._columns, check_crcs=self._check_crcs
            )
            waited_ms = clock.monotonic_ms() - began_ms
            if batches or waited_ms >= timeout_ms:
                return batches
            clock.sleep_ms(min(self._probes.pause_ms(waited_ms), timeout_ms - waited_ms))
