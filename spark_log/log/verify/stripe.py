"""Verifies one stripe: every file of its directory, and that its records are at home or in it.

It may run at the same time as writers, cleaners and processes that take home. An object that
vanishes during the run is not a finding if a newer home marker shows that its records are at home.
Memory: the state of the stripe's producers, and one object.

With ``repair`` files that nobody needs are removed, by the rules of a cleaner. A file with records
that are not at home is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS
from spark_log.errors import CorruptRecordError, NotFoundError
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import ProducerState
from spark_log.log.rewrite import ABANDONED_US
from spark_log.log.stripe import (
    StripeDirectory,
    StripeFileName,
    StripeListing,
    StripeObject,
    StripeState,
    StripeTail,
    freed_below,
)
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.record import NO_SEQUENCE
from spark_log.storage import FileInfo, check_clock_skew, newest_modified_us, storage_time_us

OnProgress = Callable[[int], None]


class StripeVerifier:
    """Verifies one stripe. Use it once.

    Attributes:
        objects: number of objects that were checked.
        records: number of their records that are not at home.
        size_bytes: the size of all files in the directory.
    """

    def __init__(
        self,
        directory: StripeDirectory,
        homes: Iterable[LocalLog],
        *,
        repair: bool = False,
        max_clock_skew_ms: int = DEFAULT_MAX_CLOCK_SKEW_MS,
    ) -> None:
        """Prepare the verification; touches nothing.

        Args:
            directory: the stripe's directory.
            homes: the logs at home of the stripe's partitions.
            repair: whether to remove files that nobody needs.
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        """
        self._directory = directory
        self._store = directory.store
        self._homes = {log.files.partition: log for log in homes}
        self._repair = repair
        self._max_clock_skew_ms = max_clock_skew_ms
        self._delay_us = (
            directory.config.file_delete_delay_ms * 1000 + self._store.time_resolution_us
        )
        self._home_number = 0
        self._home_ends: dict[int, int] = {}
        self._numbers: dict[str, int] = {}  # of the first object with an append id
        self._end: StripeState | None = None
        self.objects = 0
        self.records = 0
        self.size_bytes = 0

    def findings(self, on_progress: OnProgress = lambda done_bytes: None) -> Iterator[LogFinding]:
        """Yield problems and notes as they are found.

        Args:
            on_progress: called with numbers of bytes that were checked.

        Raises:
            ClockSkewError: ``repair``, and the clocks of this process and the storage differ too
                much to remove anything.
            StorageError: the storage does not answer.
        """
        now_us = None
        if self._repair:
            now_us = storage_time_us(self._store, self._directory.path)
            check_clock_skew(self._directory.clock, now_us, self._max_clock_skew_ms)
        files, hidden = self._store.list_with_hidden(self._directory.path)
        self.size_bytes = sum(file.size_bytes for file in files)
        now_us = newest_modified_us(files) if now_us is None else now_us
        for file in files:
            if StripeFileName.parse(file.name) is None:
                on_progress(file.size_bytes)
                message = "does not belong to the stripe. Look at it, and remove it by hand"
                yield _finding(file.path, LogFindingKind.UNKNOWN_FILE, LogSeverity.WARNING, message)
        listing = StripeListing.of(files)
        yield from self._content(listing, on_progress)
        yield from self._at_home()
        yield from self._spent(listing, now_us)
        for file in hidden:
            if file.modified_us <= now_us - max(self._delay_us, ABANDONED_US):
                message = "is a temporary file of a writer that is not running any more"
                kind = LogFindingKind.UNFINISHED_WRITE
                yield self._removed(_finding(file.path, kind, LogSeverity.WARNING, message))

    # --- objects and home markers ----------------------------------------------------------------

    def _content(self, listing: StripeListing, on_progress: OnProgress) -> Iterator[LogFinding]:
        """Yield the findings of objects and home markers, in the order of their numbers.

        The state follows from the objects. A home marker must have the same state, where all
        objects before it, or behind an earlier marker, still exist.
        """
        objects = {name.number: file for name, file in listing.files if not name.is_home}
        markers = {name.number: file for name, file in listing.files if name.is_home}
        home, end = listing.home_number, listing.end_number
        state = StripeState() if 0 in objects or not listing.files else None
        for number in sorted({*objects, *markers, *range(home, end)}):
            if state is not None and state.next_number < number:
                state = None  # objects between are missing, or were freed
            if (file := markers.get(number)) is not None:
                found = yield from self._marker(number, file, state, is_newest=number == home)
                on_progress(file.size_bytes)
                state = state if state is not None else found
            if (file := objects.get(number)) is not None:
                opened = yield from self._object(number, file, is_needed=number >= home)
                on_progress(file.size_bytes)
                state = self._take(state, opened, file)
            elif home <= number < end and self._is_missing(number):
                yield _finding(
                    self._directory.file_path(number),
                    LogFindingKind.MISSING_OBJECT,
                    LogSeverity.ERROR,
                    "is missing, but the stripe has objects behind it, and no home marker above "
                    "it. Restore it from a copy",
                )
        self._end = state

    def _take(
        self, state: StripeState | None, found: StripeObject | None, file: FileInfo
    ) -> StripeState | None:
        """Return the state after an object; None if it is not known."""
        if state is None or found is None:
            return None
        state.take(found.directory)
        state.on_listed(file.modified_us, self._directory.config.producer_id_expiration_ms)
        return state

    def _is_missing(self, number: int) -> bool:
        """Return whether a second listing shows that an object is missing."""
        again = self._directory.list()
        return again.home_number <= number and not any(
            name.number == number and not name.is_home for name, _ in again.files
        )

    def _object(
        self, number: int, file: FileInfo, *, is_needed: bool
    ) -> Generator[LogFinding, None, StripeObject | None]:
        """Yield the findings of an object; return it, or None if it cannot be opened."""
        severity = LogSeverity.ERROR if is_needed else LogSeverity.WARNING
        try:
            found = self._directory.open(number)
            if found is None:
                return None  # deleted meanwhile: `_is_missing` looks at those that are needed
            self.objects += 1
            for problem in self._entries(found, is_needed=is_needed):
                yield _finding(file.path, LogFindingKind.DAMAGED_OBJECT, severity, problem)
        except NotFoundError:
            return None
        except CorruptRecordError as error:
            yield _finding(file.path, LogFindingKind.DAMAGED_OBJECT, severity, _reason(error))
            return None
        return found

    def _entries(self, found: StripeObject, *, is_needed: bool) -> Iterator[str]:
        """Yield the faults of an object's entries: their partitions, headers and checksums."""
        same = self._numbers.setdefault(found.append_id, found.number)
        if same != found.number:
            yield (
                f"holds the same append as {StripeFileName(same).file_name}: its file was replaced "
                f"by a copy. Restore the original file"
            )
        for partition, _ in found.directory.groups():
            number = self._directory.stripe_of(partition)
            if number != self._directory.stripe:
                yield (
                    f"has entries of partition {partition}, which is in stripe {number}. Restore "
                    f"it from a copy"
                )
        for run in found.runs(range(len(found.directory))):
            try:
                for _, records in found.read(run):
                    self.records += records.num_rows if is_needed else 0
            except CorruptRecordError as error:
                yield _reason(error)

    def _marker(
        self, number: int, file: FileInfo, state: StripeState | None, *, is_newest: bool
    ) -> Generator[LogFinding, None, StripeState | None]:
        """Yield the findings of a home marker; return the state in it, or None if it is damaged.

        Args:
            number: the marker's number.
            file: the marker's file.
            state: the state that follows from the objects before it; None if it is not known.
            is_newest: whether it is the newest marker, at which readers begin.
        """
        severity = LogSeverity.ERROR if is_newest else LogSeverity.WARNING
        try:
            found = self._directory.read_home(number)
        except NotFoundError:
            return None  # deleted meanwhile, below a newer one
        except CorruptRecordError as error:
            yield _finding(file.path, LogFindingKind.DAMAGED_HOME, severity, _reason(error))
            return None
        if is_newest:
            self._home_number, self._home_ends = number, found.ends()
        if state is not None:
            expiration_ms = self._directory.config.producer_id_expiration_ms
            for problem in _differences(found, state, file.modified_us, expiration_ms):
                yield _finding(file.path, LogFindingKind.WRONG_HOME, severity, problem)
        return found

    # --- at home ---------------------------------------------------------------------------------

    def _at_home(self) -> Iterator[LogFinding]:
        """Yield partitions whose segments end before the newest marker, or behind the stripe."""
        ends = self._home_ends
        for partition, log in self._homes.items():
            try:
                end = log.observe().log_end_offset
            except CorruptRecordError:
                continue  # the verification of the partition reports it
            if end < ends.get(partition, 0):
                yield _finding(
                    log.directory,
                    LogFindingKind.MISSING_SEGMENT,
                    LogSeverity.ERROR,
                    f"its segments end at offset {end}, but home marker {self._home_number} "
                    f"of stripe {self._directory.stripe} says that they reach "
                    f"{ends[partition]}: segments are missing. Restore them from a copy",
                )
            elif self._end is not None and end > self._end.end_offset(partition):
                yield from self._behind_stripe(partition, end)

    def _behind_stripe(self, partition: int, end_at_home: int) -> Iterator[LogFinding]:
        """Yield a finding if the stripe ends before what is at home, also when it is read again."""
        tail = StripeTail(self._directory)
        try:
            tail.refresh()
        except CorruptRecordError:
            return  # reported as another finding
        end = tail.state.end_offset(partition)
        if end < end_at_home:
            yield _finding(
                self._directory.path,
                LogFindingKind.MISSING_OBJECT,
                LogSeverity.ERROR,
                f"the stripe ends at object {tail.state.next_number}, with offset {end} of "
                f"partition {partition}, but segments at home reach offset {end_at_home}: the last "
                f"objects are missing. Restore them from a copy",
            )

    # --- files that nobody needs -----------------------------------------------------------------

    def _spent(self, listing: StripeListing, now_us: int) -> Iterator[LogFinding]:
        """Yield objects and markers below the newest marker; a repair removes those it may."""
        below = freed_below(listing, now_us - self._delay_us)
        for name, file in listing.files:
            kind = LogFindingKind.SPENT_OBJECT
            if name.number < below:
                message = "is not part of the stripe any more"
                yield self._removed(_finding(file.path, kind, LogSeverity.WARNING, message))
            elif name.number < listing.home_number:
                message = "its records are at home; it is kept for readers that still use it"
                yield _finding(file.path, kind, LogSeverity.NOTE, message)

    def _removed(self, finding: LogFinding) -> LogFinding:
        if not self._repair:
            return finding
        self._store.delete(finding.path)
        return replace(finding, repaired=True)


def _differences(
    marker: StripeState, state: StripeState, marked_us: int, expiration_ms: int
) -> Iterator[str]:
    """Yield the differences between a home marker and the state that follows from the objects.

    Args:
        marker: the state in the marker.
        state: the state that follows from the objects before the marker.
        marked_us: the marker's last-modified time, microseconds since the epoch. It may lack
            producers that had expired.
        expiration_ms: ``producer.id.expiration.ms``.
    """
    remedy = "Restore the home marker, or the objects before it, from a copy"
    ends = marker.ends()
    for partition, producers in state.partitions():
        end = ends.pop(partition, 0)
        if end != producers.offset:
            yield (
                f"says that partition {partition} ends at offset {end}, but with the objects "
                f"before it it ends at {producers.offset}. {remedy}"
            )
            continue
        told = marker.producers(partition)
        assert told is not None
        needed = producers.without_expired(now_us=marked_us, expiration_ms=expiration_ms)
        lasts, told_lasts = _lasts(producers), _lasts(told)
        wrong = [
            producer_id
            for producer_id in sorted({*_lasts(needed), *told_lasts})
            if told_lasts.get(producer_id) != lasts.get(producer_id)
        ]
        if wrong:
            yield (
                f"has another state of producer {wrong[0]} in partition {partition} than the "
                f"objects before it. {remedy}"
            )
        if told.transactions.open != producers.transactions.open:
            yield (
                f"has other open transactions in partition {partition} than the objects before "
                f"it. {remedy}"
            )
    for partition, end in sorted(ends.items()):
        yield (
            f"says that partition {partition} ends at offset {end}, but no object before it has "
            f"records of this partition. {remedy}"
        )


def _lasts(producers: ProducerState) -> dict[int, tuple[int, int, int]]:
    """Return epoch, next sequence number and last offset of each producer."""
    found = {}
    for producer_id, entry in producers.entries():
        run = entry.runs[-1] if entry.runs else None
        last = (NO_SEQUENCE, -1) if run is None else (run.next_sequence, run.end_offset)
        found[producer_id] = (entry.epoch, *last)
    return found


def _reason(error: CorruptRecordError) -> str:
    """Return the problem without the path, which the finding has."""
    return error.message.removeprefix(f"{error.path}: ").removeprefix(f"{error.path}, ")


def _finding(path: str, kind: LogFindingKind, severity: LogSeverity, message: str) -> LogFinding:
    return LogFinding(path, kind, severity, message)
