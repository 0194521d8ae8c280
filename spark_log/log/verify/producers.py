"""Compares the producer state in a snapshot with the batch headers of the log.

Headers can only confirm the producers whose batches are in the log; producers whose records are
before the log's start exist in snapshots alone and are not checked. A producer may rightly be
missing from a snapshot: a producer that was idle for long may have expired before the snapshot was
written, and a rewrite may have removed its batches. The append time of a batch in a rewritten
segment is not known; it is only known to be after the append of the plain segments before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from spark_log.log.files import LiveSegment
from spark_log.log.producers import ProducerEntry, ProducerState, SequenceRun
from spark_log.record import NO_PRODUCER_ID, BatchHeader, sequence_after


class ProducerCheck:
    """Checks the producers of one snapshot by replaying batch headers in offset order."""

    def __init__(
        self, state: ProducerState, *, written_us: int, first_offset: int, expiration_ms: int
    ) -> None:
        """Start before the first header.

        Args:
            state: the producer state of the snapshot.
            written_us: the time when the snapshot was written, by the storage's clock.
            first_offset: the log start offset. The headers of batches before it do not exist.
            expiration_ms: ``producer.id.expiration.ms``. The checks use half of it, because older
                versions expired producers by the clock of the machine that wrote the snapshot.
        """
        self._said = dict(state.entries())
        self._end_offset = state.offset
        self._written_us = written_us
        self._first_offset = first_offset
        self._forgettable_us = expiration_ms * 500
        self._runs = sorted(
            ((run, producer_id) for producer_id, entry in self._said.items() for run in entry.runs),
            key=lambda pair: pair[0].base_offset,
        )
        self._position = first_offset
        self._appended_after_us = self._rewritten_us = self._compacted_to = 0
        self._rebuilt = ProducerState(first_offset)
        self._expected: dict[int, ProducerState] = {}
        """The state that the snapshot must have, by producer id."""
        self._seen: set[tuple[int, int]] = set()
        self._problems: dict[int, str] = {}
        for (run, producer_id), (following, other_id) in zip(
            self._runs, self._runs[1:], strict=False
        ):
            if run.end_offset > following.base_offset:
                self._add_problem(
                    producer_id, f"has offset {following.base_offset}, as producer {other_id} does"
                )
        for run, producer_id in self._runs:
            if run.end_offset > self._end_offset:
                self._add_problem(
                    producer_id, f"has records up to offset {run.end_offset}, after the snapshot"
                )

    def replay(
        self, segment: LiveSegment, base_offset: int, headers: Iterable[BatchHeader]
    ) -> None:
        """Replay headers of a live segment. Headers after the snapshot's offset are skipped.

        Args:
            segment: the segment of the headers.
            base_offset: the offset that the headers' deltas are relative to.
            headers: sound headers, in offset order.
        """
        modified_us = segment.file.modified_us
        if segment.name.generation:
            self._rewritten_us = max(self._rewritten_us, modified_us)
            if segment.name.is_compacted:
                self._compacted_to = segment.end_offset or 0
        else:
            self._appended_after_us = max(self._appended_after_us, modified_us)
        for header in headers:
            start = base_offset + header.base_offset_delta
            end = base_offset + header.last_offset_delta + 1
            if end <= self._position or end > self._end_offset:
                continue
            if start > self._position:
                self._expected.clear()  # the missing headers may have changed the state
            self._position = end
            self._check_runs(segment, header, start, end)
            self._replay(base_offset, header, start, modified_us)

    def problems(self) -> dict[int, str]:
        """Return the problem of each wrong producer, by id. Call it after all headers' replay."""
        if self._position == self._end_offset:
            self._check_expected()
            if self._first_offset == 0:
                self._check_all_have_headers()
        return self._problems

    def corrected(self) -> ProducerState:
        """Return the state with wrong entries replaced by the state that the headers give.

        Entries that headers cannot confirm do not change. Call it after all headers were replayed.
        """
        entries, rebuilt = dict(self._said), dict(self._rebuilt.entries())
        for producer_id in self.problems():
            entry = self._corrected(entries.pop(producer_id, None), rebuilt.get(producer_id))
            if entry is not None:
                entries[producer_id] = entry
        return ProducerState(self._end_offset, entries.items())

    # --- wrong entries ---------------------------------------------------------------------------

    def _check_runs(self, segment: LiveSegment, header: BatchHeader, start: int, end: int) -> None:
        """Check the runs of sequence numbers at a batch's offsets."""
        if header.producer_id == NO_PRODUCER_ID and not header.record_count:
            return  # a compaction put it at the end of a segment, for batches that were removed
        for run, producer_id in self._runs_over(start, end):
            entry = self._said[producer_id]
            said = (
                producer_id,
                entry.epoch,
                sequence_after(run.base_sequence, start - run.base_offset),
            )
            true = (header.producer_id, header.producer_epoch, header.base_sequence)
            is_joined = header.producer_id == NO_PRODUCER_ID and segment.name.generation > 0
            if is_joined and self._may_expire(entry.appended_us, segment.file.modified_us):
                continue
            if said != true:
                names = "producer id, epoch and sequence number"
                self._add_problem(producer_id, f"{names} at offset {start} are {true}, not {said}")

    def _runs_over(self, start: int, end: int) -> Iterator[tuple[SequenceRun, int]]:
        at = bisect_right(self._runs, start, key=lambda pair: pair[0].base_offset) - 1
        for run, producer_id in self._runs[max(0, at) :]:
            if run.base_offset >= end:
                return
            if run.end_offset > start:
                yield run, producer_id

    def _check_all_have_headers(self) -> None:
        """Check that each producer has a header, in a log that has all headers from offset 0."""
        for producer_id, entry in self._said.items():
            is_expired_or_compacted = self._may_expire(entry.appended_us, self._rewritten_us) or (
                # A compaction may have removed the producer's batches or marker before this offset.
                self._compacted_to > 0
                and all(run.end_offset <= self._compacted_to for run in entry.runs[-1:])
            )
            if (producer_id, entry.epoch) not in self._seen and not is_expired_or_compacted:
                self._add_problem(producer_id, f"has no records of epoch {entry.epoch}")

    # --- missing entries -------------------------------------------------------------------------

    def _replay(self, base_offset: int, header: BatchHeader, start: int, modified_us: int) -> None:
        producer_id = header.producer_id
        self._rebuilt.replay(base_offset, [header], modified_us)
        if producer_id == NO_PRODUCER_ID:
            return
        self._seen.add((producer_id, header.producer_epoch))
        expected = self._expected.get(producer_id)
        if expected is None or self._may_expire(_entry(expected).appended_us, modified_us):
            expected = self._expected[producer_id] = ProducerState(start)
        expected.replay(base_offset, [header], self._appended_after_us)

    def _check_expected(self) -> None:
        for producer_id, state in self._expected.items():
            true, said = _entry(state), self._said.get(producer_id)
            if self._may_expire(true.appended_us, self._written_us):
                continue
            if said is None:
                self._add_problem(producer_id, "is missing")
            elif said.epoch < true.epoch:
                self._add_problem(producer_id, f"is in epoch {true.epoch}, not {said.epoch}")
            elif said.epoch == true.epoch:
                for run in true.runs:
                    if not any(_holds(other, run) for other in said.runs):
                        text = f"its records at offsets {run.base_offset} to {run.end_offset - 1}"
                        self._add_problem(producer_id, f"{text} are missing")

    # --- helpers ---------------------------------------------------------------------------------

    def _corrected(
        self, said: ProducerEntry | None, true: ProducerEntry | None
    ) -> ProducerEntry | None:
        if said is None or self._first_offset == 0:
            return true
        if true is not None and true.epoch > said.epoch:
            return true
        before = [_part(run, 0, self._first_offset) for run in said.runs]
        entry = replace(said, runs=tuple(run for run in before if run is not None))
        if true is not None and true.epoch == said.epoch:
            for run in true.runs:
                behind = _part(run, self._first_offset, run.end_offset)
                if behind is not None:
                    entry = entry.with_run(behind, true.appended_us)
        return entry

    def _may_expire(self, appended_us: int, at_us: int) -> bool:
        return at_us - appended_us >= self._forgettable_us

    def _add_problem(self, producer_id: int, problem: str) -> None:
        self._problems.setdefault(producer_id, problem)


def _entry(state: ProducerState) -> ProducerEntry:
    """Return the only entry of a state."""
    ((_, entry),) = state.entries()
    return entry


def _holds(run: SequenceRun, part: SequenceRun) -> bool:
    return run.offset_of(part.base_sequence, part.record_count) == part.base_offset


def _part(run: SequenceRun, start: int, end: int) -> SequenceRun | None:
    """Return the part of a run between two offsets; None if it is empty."""
    first, last = max(run.base_offset, start), min(run.end_offset, end)
    if first >= last:
        return None
    sequence = sequence_after(run.base_sequence, first - run.base_offset)
    return SequenceRun(sequence, first, last - first)
