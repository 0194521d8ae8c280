"""Following a log: a reader that waits at the log's end for the next segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment.log_batch import LogBatch
from spark_log.storage import Store

_WAITED_SHARE = 0.1
"""The pause before the next probe, as a share of the time waited so far. So a record is read late
by a tenth of the time since the one before it, and an idle log costs few probes."""

_PROBE_SHARE = 0.2
"""What each further partition adds to the longest pause: about the cost of its probe as a share of
the cost of waking up and probing one."""


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """The shortest and the longest pause between two probes for the next segment.

    A probe tries to open the file whose name is the log end offset.
    """

    min_ms: float
    max_ms: float

    @staticmethod
    def of(store: Store) -> ProbeInterval:
        """Return `LOCAL_PROBES` for a store that maps files into memory, else `REMOTE_PROBES`."""
        return LOCAL_PROBES if store.is_mapped else REMOTE_PROBES

    def pause_ms(self, waited_ms: float, partitions: int = 1) -> float:
        """Return the pause before the next probe.

        Args:
            waited_ms: how long no record has arrived.
            partitions: how many are probed each time; more of them lengthen the longest pause.
        """
        max_ms = self.max_ms * (1 + _PROBE_SHARE * (partitions - 1))
        return min(max(self.min_ms, waited_ms * _WAITED_SHARE), max_ms)


LOCAL_PROBES = ProbeInterval(0.2, 2.5)
"""A probe is a system call that fails: 400 of them a second take 1 % of a core."""

REMOTE_PROBES = ProbeInterval(10.0, 100.0)
"""A probe is a request that costs money."""


class TailReader:
    """Reads a partition from an offset on, and waits at the end for more records.

    No record is missed or returned twice: at the log's end the reader probes the one name that the
    next segment must have, and it lists the log again before that name can be reused (`TailView`).

    Attributes:
        position: offset of the next record to be read; may be set, to seek.
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
        """Create a reader. Accesses no storage yet.

        Args:
            log: of the partition; used by this reader alone.
            offset: of the first record.
            columns: of `RECORD_SCHEMA`, in this order; None for all.
            check_crcs: whether to check the checksums of batches (``check.crcs``).
            probes: pauses between probes; None for those that suit the store.
        """
        self.position = offset
        self._log = log
        self._columns = columns
        self._check_crcs = check_crcs
        self._probes = probes or ProbeInterval.of(log.files.store)

    def fetch(self, max_bytes: int = 52_428_800, timeout_ms: float = 0) -> list[LogBatch]:
        """Return the next batches; at the log's end wait for one.

        Args:
            max_bytes: approximate size of the answer; the first batch may be larger.
            timeout_ms: how long to wait; then the answer is empty.

        Raises:
            OffsetOutOfRangeError: retention deleted the records at `position`; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
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
