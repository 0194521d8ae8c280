"""One partition's log: append by put-if-absent, read by offset and by time (DESIGN.md, 5 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    LogEndOffsetMismatchError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveLog, LiveSegment, live_log
from spark_log.log.segment import LogBatch, SegmentReader
from spark_log.log.segment_writer import SegmentWriter, StagedSegment
from spark_log.storage import Store

_MAX_RACES = 10_000
"""Names tried for one append before giving up: far above what any number of writers causes."""

_MAX_LOST_ANSWERS = 10
"""Puts of one append whose answers are lost before it is called unknown."""


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """Where an append ended up: offsets of its first and its last record."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class LogView:
    """What one listing showed of the log, with the end that its last file tells.

    Attributes:
        live: the chain of segments.
        log_end_offset: the next offset to be written.
        observed_ms: monotonic time before the listing began.
    """

    live: LiveLog
    log_end_offset: int
    observed_ms: float

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.live.log_start_offset

    def check_offset(self, offset: int, where: str) -> None:
        """Check that the log can be read from ``offset``; its end waits for records.

        Raises:
            OffsetOutOfRangeError: with the valid range.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if start <= offset <= end:
            return
        holds = (
            f"the log holds {start} to {end - 1}" if start < end else f"the log is empty at {end}"
        )
        raise OffsetOutOfRangeError(
            f"{where}: offset {offset} is out of range; {holds}",
            offset=offset,
            log_start_offset=start,
            log_end_offset=end,
        )


@dataclass(frozen=True, slots=True)
class _Winner:
    """Whose segment has a name, and where it ends."""

    end_offset: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class _Tail:
    """A log end offset, and when it was known to be free."""

    log_end_offset: int
    observed_ms: float


class PartitionLog:
    """The log of one partition in one directory.

    Appends are atomic: one append is one segment file, visible whole or not at all. Any number of
    processes append and read at once without knowing of each other. Nothing is cached that could
    change an answer: what is kept is the last observed end, which put-if-absent checks.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        topic_id: str,
        partition: int,
        config: TopicConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open a log; touches nothing.

        Args:
            store: where it lies.
            directory: the partition's directory, relative to the store's root.
            topic_id: of the topic; checked against every segment.
            partition: its number; likewise.
            config: the topic's settings.
            clock: for the rule on late success.
        """
        self.directory = directory
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._config = config or TopicConfig()
        self._clock = clock
        self._tail: _Tail | None = None

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        records: pa.RecordBatch | Iterable[pa.RecordBatch],
        *,
        compression: str = "none",
        expected_leo: int | None = None,
    ) -> LogAppendInfo:
        """Append records as one segment; on return they are durable and visible.

        Args:
            records: one record batch with the columns of `RECORD_SCHEMA`, or several, which are
                streamed in constant memory and become visible together.
            compression: the writer's choice, where the topic's is ``producer``.
            expected_leo: append only at exactly this offset.

        Raises:
            LogEndOffsetMismatchError: the log's end is not ``expected_leo``; nothing was appended.
            UnknownOutcomeError: whether the records are in the log could not be found out.
            StorageFullError: nothing was appended.
            InvalidRecordError: the records do not fit; nothing was appended.
        """
        writer = self.segment_writer(compression)
        try:
            for batch in [records] if isinstance(records, pa.RecordBatch) else records:
                writer.write(batch)
            return self.append_segment(writer.finish(), expected_leo=expected_leo)
        finally:
            writer.discard()

    def segment_writer(self, compression: str = "none") -> SegmentWriter:
        """Return a writer for a segment that `append_segment` will take."""
        topics = self._config.compression_type
        return SegmentWriter(
            self._store,
            self.directory,
            topic_id=self._topic_id,
            partition=self._partition,
            compression=compression if topics == "producer" else topics,
            index_interval_bytes=self._config.index_interval_bytes,
        )

    def append_segment(
        self, segment: StagedSegment, *, expected_leo: int | None = None
    ) -> LogAppendInfo:
        """Give a staged segment its place at the log's end.

        Raises:
            LogEndOffsetMismatchError: the log's end is not ``expected_leo``; nothing was appended.
            UnknownOutcomeError: whether the segment is in the log could not be found out.
            StorageError: nothing was appended.
        """
        # Offsets at which this segment may stand, or come to stand: their answers were lost.
        unknown: set[int] = set()
        try:
            return self._append(segment, expected_leo, unknown)
        except UnknownOutcomeError:
            self._tail = None
            raise
        except (StorageError, CorruptRecordError) as error:
            self._tail = None
            if not unknown:
                raise
            raise UnknownOutcomeError(
                f"{self.directory}: the answer to an append was lost, and finding out what became "
                f"of it failed: {error}",
                path=self.directory,
            ) from error

    def _append(
        self, segment: StagedSegment, expected_leo: int | None, unknown: set[int]
    ) -> LogAppendInfo:
        tail = self._tail
        if tail is None or not self._is_recent(tail):
            tail = self._observe_tail()  # an old name may be spent: a put there would be void
        lost_answers = 0
        for _ in range(_MAX_RACES):
            if expected_leo is not None and tail.log_end_offset != expected_leo:
                tail = self._observe_tail()
                if tail.log_end_offset != expected_leo:
                    raise LogEndOffsetMismatchError(
                        f"{self.directory}: the log ends at {tail.log_end_offset}, not at "
                        f"{expected_leo}; read up to its end and try again",
                        expected=expected_leo,
                        actual=tail.log_end_offset,
                    )
            base_offset = tail.log_end_offset
            # Before the put, so that no pause after it makes what it shows look newer than it is.
            tried_ms = self._clock.monotonic_ms()
            try:
                winner = self._try_put(segment, base_offset)
            except UnknownOutcomeError as error:
                if error.is_visible:
                    raise
                winner = None
            is_recent = self._is_recent(tail)
            # Where an earlier put of ours was lost, only a fresh look tells that it never stood.
            is_settled = is_recent or base_offset not in unknown
            if winner is not None and not winner.is_ours and is_settled:
                unknown.discard(base_offset)
                known = _Tail(winner.end_offset, tried_ms)
                tail = self._tail = known if is_recent else self._observe_tail()
                continue
            if winner is not None and is_recent:
                self._tail = _Tail(winner.end_offset, tried_ms)
                return self._acknowledge(segment, base_offset)
            unknown.add(base_offset)
            lost_answers += 1
            if lost_answers > _MAX_LOST_ANSWERS:
                raise UnknownOutcomeError(
                    f"{self.directory}: the answers to {lost_answers} puts of one append were lost",
                    path=self.directory,
                )
            found, tail = self._look_for(segment, unknown)
            if found is not None:
                return self._acknowledge(segment, found)
            # What is not live below the log's end will never be.
            unknown -= {offset for offset in unknown if offset < tail.log_end_offset}
        raise StorageError(
            f"{self.directory}: {_MAX_RACES} other appends came first; nothing was appended",
            path=self.directory,
        )

    def _try_put(self, segment: StagedSegment, base_offset: int) -> _Winner | None:
        """Put the segment at an offset, and return whose segment stands there now.

        None when that cannot be seen: what took the name is gone again, or cannot be read.
        """
        name = SegmentName(base_offset)
        try:
            self._store.put_if_absent(
                f"{self.directory}/{name.log}", segment.staged, sync=self._config.flush_on_append
            )
        except AlreadyExistsError:
            try:
                winner = self._open(name)
            except StorageError:
                return None
            return _Winner(winner.end_offset, winner.append_id == segment.append_id)
        return _Winner(base_offset + segment.record_count, is_ours=True)

    def _is_recent(self, tail: _Tail) -> bool:
        """Whether nothing that was observed then can have been freed since (late-success rule)."""
        age_ms = self._clock.monotonic_ms() - tail.observed_ms
        return age_ms < self._config.file_delete_delay_ms / 2

    def _look_for(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, _Tail]:
        """Find out whether the segment is in the live log, at one of the offsets named.

        Raises:
            UnknownOutcomeError: the place was rewritten, or fell behind the log's start, since.
            StorageError: the store does not answer.
        """
        view = self.observe()
        for offset in sorted(unknown):
            if offset >= view.log_end_offset:
                continue
            index = view.live.index_of(offset)
            if index < 0 or view.live.segments[index].name.last_offset is not None:
                raise UnknownOutcomeError(
                    f"{self.directory}: the answer to an append at offset {offset} was lost, and "
                    f"the place was merged or deleted before it could be looked at; read from "
                    f"{max(offset, view.log_start_offset)} to see whether the records are there",
                    path=self.directory,
                )
            live = view.live.segments[index]
            is_named = live.name.base_offset == offset
            if is_named and self._open(live.name).append_id == segment.append_id:
                return offset, self._remember(view)
        return None, self._remember(view)

    def _acknowledge(self, segment: StagedSegment, base_offset: int) -> LogAppendInfo:
        for name, data in segment.derived_files(SegmentName(base_offset)):
            try:
                self._store.put(f"{self.directory}/{name}", data)
            except StorageError:
                break  # derived: the records are safe, and readers do without
        return LogAppendInfo(base_offset, base_offset + segment.record_count - 1)

    def _observe_tail(self) -> _Tail:
        return self._remember(self.observe())

    def _remember(self, view: LogView) -> _Tail:
        self._tail = _Tail(view.log_end_offset, view.observed_ms)
        return self._tail

    # --- reading ---------------------------------------------------------------------------------

    def observe(self) -> LogView:
        """Return what the log is now: one listing, and the last file's last header.

        Raises:
            CorruptRecordError: the last file is damaged, or a segment before others is missing.
        """
        hole: tuple[int, int] | None = None
        while True:
            observed_ms = self._clock.monotonic_ms()
            live = live_log(self._store.list(self.directory))
            if live.beyond is not None:
                # What appears during a listing may be left out of it although a later one is not.
                before, hole = hole, (live.end_of_chain, live.beyond)
                if hole != before:
                    continue
                raise CorruptRecordError(
                    f"{self.directory}: the log ends at offset {hole[0]}, but there is a segment "
                    f"at {hole[1]}: what lies between them is missing. Restore it from a copy",
                    path=self.directory,
                )
            if not live.segments:
                return LogView(live, live.log_start_offset, observed_ms)
            last = live.segments[-1]
            try:
                end_offset = last.end_offset or self._open(last.name).end_offset
            except NotFoundError:
                continue  # rewritten and freed since the listing: list again
            return LogView(live, end_offset, observed_ms)

    def log_start_offset(self) -> int:
        """Return the first offset that can be read."""
        return self.observe().log_start_offset

    def log_end_offset(self) -> int:
        """Return the next offset to be written."""
        return self.observe().log_end_offset

    def fetch(
        self,
        offset: int,
        max_bytes: int = 52_428_800,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> list[LogBatch]:
        """Return batches from ``offset`` on, up to about ``max_bytes``, at least one if there is.

        Empty at the log's end. Control batches are left out.

        Args:
            offset: of the first record.
            max_bytes: as in Kafka (``fetch.max.bytes``, 50 MiB): the first batch may be larger.
            columns: see `SegmentReader.read`.
            check_crcs: see `SegmentReader.read`.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: with file and position.
        """
        batches: list[LogBatch] = []
        total_bytes = 0
        for batch in self.scan(offset, columns=columns, check_crcs=check_crcs):
            if batches and total_bytes + batch.stored_bytes > max_bytes:
                break
            batches.append(batch)
            total_bytes += batch.stored_bytes
        return batches

    def scan(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
    ) -> Iterator[LogBatch]:
        """Yield batches from ``start_offset`` to before ``end_offset``, or the end observed now.

        Files that a rewrite replaces meanwhile are read from their replacement. Control batches
        are left out.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: with file and position.
        """
        view = self.observe()
        end = view.log_end_offset if end_offset is None else end_offset
        for position, reader in self._readers(view, start_offset, end):
            stop = min(end, reader.end_offset)
            for batch in reader.read(position, stop, columns=columns, check_crcs=check_crcs):
                if not batch.is_control:
                    yield batch

    def offset_for_time(self, timestamp_us: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time, or None.

        Exactly the first in offset order, also where timestamps go backwards
        (``KafkaConsumer.offsetsForTimes``).

        Args:
            timestamp_us: microseconds since the epoch.
        """
        view = self.observe()
        try:
            for position, reader in self._readers(view, view.log_start_offset, view.log_end_offset):
                if reader.max_timestamp_us >= timestamp_us:
                    found = reader.offset_for_time(timestamp_us, position)
                    if found is not None:
                        return found
        except OffsetOutOfRangeError:
            return self.offset_for_time(timestamp_us)  # the start moved on meanwhile
        return None

    def _readers(
        self, view: LogView, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, SegmentReader]]:
        """Open the live segments from an offset on, each with where to begin in it.

        Files that a rewrite replaces meanwhile are followed by their replacement.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: a segment is missing.
        """
        position = start_offset
        doubted: LiveSegment | None = None
        view.check_offset(position, self.directory)
        while position < min(end_offset, view.log_end_offset):
            segment = view.live.segments[view.live.index_of(position)]
            try:
                reader = self._open(segment.name)
            except NotFoundError:
                pass
            else:
                if segment.end_offset in (None, reader.end_offset):
                    yield position, reader
                    position = reader.end_offset
                    continue
                if segment == doubted:
                    raise self._missing(segment, reader)
                doubted = segment  # what appeared during the listing may be left out of it
            view = self.observe()
            view.check_offset(position, self.directory)

    def _open(self, name: SegmentName) -> SegmentReader:
        return SegmentReader(
            self._store,
            self.directory,
            name,
            topic_id=self._topic_id,
            partition=self._partition,
        )

    def _missing(self, segment: LiveSegment, reader: SegmentReader) -> CorruptRecordError:
        return CorruptRecordError(
            f"{reader.path} ends at offset {reader.end_offset}, but the next segment begins "
            f"at {segment.end_offset}: a segment between them is missing. Restore it from a "
            f"copy, or read on from {segment.end_offset}",
            path=reader.path,
        )
