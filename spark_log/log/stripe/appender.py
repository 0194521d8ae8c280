"""The append protocol of a stripe: put-if-absent gives an object the number after the last.

On storage an append is one object, ``<number>.stripe``. The one put orders the entries of all its
partitions. It is visible whole or not at all, so a crash leaves either no append or a complete one
(protocol P1, P2, P3, P4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from spark_log.errors import (
    AlreadyExistsError,
    InvalidProducerEpochError,
    LogEndOffsetMismatchError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.append import OFTEN_SHORT_OF, LogAppendInfo
from spark_log.log.segment import (
    BatchAppend,
    LogValidator,
    SegmentWriter,
    StagedSegment,
    validated_batch,
)
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry, entries_of_one_object, first_of_producers
from spark_log.log.stripe.state import UNKNOWN_OFFSET
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail, Taken
from spark_log.record import NO_TIMESTAMP, BatchHeader, EntryDirectory

_log = logging.getLogger(__name__)

_MAX_RACES: Final = 10_000
"""Numbers that one append tries before it fails: far more than any number of writers causes."""

_MAX_LOST_ANSWERS: Final = 10
"""Number of lost answers after which an append is given up, and its outcome is unknown."""

OnPut = Callable[[int, StagedSegment], None]
"""Is called with the number of an object, and the object, when it was put."""

AppendResult = LogAppendInfo | SparkLogError | None
"""The result of an entry: its offsets, the error that refused it or left it unknown, or None for a
transaction marker that the partition has already."""


def may_be_short(decision: int | SparkLogError) -> bool:
    """Return whether a decision may only mean that the state lacks what others have appended."""
    if isinstance(decision, LogEndOffsetMismatchError):
        return decision.expected > decision.actual
    return isinstance(decision, OFTEN_SHORT_OF)


class StripeAppender:
    """Appends batches and markers of many partitions to one stripe, for one thread.

    The state of the stripe is kept between two appends. A process that is alone puts without a
    read; one that has met others reads the next number first, since a read costs a twelfth of a put
    that loses.

    Attributes:
        home_number: number of a home marker that others have told of; 0 without one.
    """

    tail_class: ClassVar[type[StripeTail]] = StripeTail
    """The class that keeps the stripe's end. A subclass may have another one."""

    def __init__(self, directory: StripeDirectory) -> None:
        """Access no storage yet."""
        self._directory = directory
        self._clock = directory.clock
        self._on_put: OnPut | None = None
        self._tail = self.tail_class(directory, self.on_object)
        self._is_contended = False
        self._append: _Append | None = None
        self.home_number = 0
        self._objects = self._entries = 0

    def share(self, taken: Taken, on_put: OnPut) -> None:
        """Share objects with what the process reads of the stripe.

        Args:
            taken: returns an object that was read; None if it is not in memory.
            on_put: is called with each object that was put, and its number.
        """
        self._tail.taken, self._on_put = taken, on_put

    @property
    def objects_behind_home(self) -> int:
        """Number of objects at and behind the newest home marker that this process knows of."""
        return self._tail.state.next_number - max(self._tail.home_number, self.home_number)

    @property
    def entries_behind_home(self) -> int:
        """Their entries, by the mean of the objects that this process has seen."""
        return self.objects_behind_home * self._entries // max(1, self._objects)

    @property
    def partitions(self) -> int:
        """Number of partitions that have had entries: at most as many get files at home."""
        return self._tail.state.partition_count

    @property
    def observed_ms(self) -> float:
        """Monotonic time at which the next number was last known to be unused."""
        return self._tail.observed_ms

    def ends(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the known log end offset of partitions, and the last stable offset there."""
        ends = {}
        for partition in set(partitions):
            producers = self._tail.state.producers(partition)
            if producers is not None:
                ends[partition] = producers.offset, producers.transactions.last_stable_offset
        return ends

    def append(
        self, entries: Sequence[StripeEntry], *, compression: str = "none"
    ) -> Sequence[AppendResult]:
        """Append entries: those that are neither repeats nor refused, in one object where possible.

        Each entry is decided alone. Entries that do not follow their producer's one in the same
        object are put in a further one. On return all entries with offsets are durable and visible.

        Args:
            entries: the entries, in the order in which those of one partition get offsets.
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.

        Returns:
            The result of each entry. An `UnknownOutcomeError`: the entry may be in the stripe; the
            same call again finds out if it has a producer. Any other error: it was not appended.
        """
        append = _Append(self._directory, entries)
        self._append = append
        try:
            self._observe()
            races = 0
            while self._decide(append) and races < _MAX_RACES:
                self._put(append, compression)
                races += 1
            if append.waiting():
                path = self._directory.path
                raise StorageError(
                    f"{path}: {_MAX_RACES} other appends came first; nothing was appended. Try "
                    f"again",
                    path=path,
                )
        except SparkLogError as error:
            self._tail.doubt()
            append.fail(error)
        finally:
            self._append = None
            append.discard()
        return append.results

    # --- state before put -------------------------------------------------------------------------

    def _observe(self) -> None:
        """Know the stripe's end, if it is not known or if others were met there."""
        tail = self._tail
        # Without its last object the stripe is an older copy, or damaged: then the listing raises.
        if tail.state.is_overgrown or self._is_last_gone():
            tail.doubt()
        if self._is_contended or not tail.is_recent:
            known = tail.state.next_number
            tail.refresh()
            self._is_contended = tail.state.next_number > known

    def _is_last_gone(self) -> bool:
        """Return whether the last object is known to be deleted, without sending a request."""
        directory, number = self._directory, self._tail.state.next_number
        return bool(number) and directory.store.is_gone(directory.file_path(number - 1))

    def _decide(self, append: _Append) -> bool:
        """Decide entries by the state of all objects so far; return whether some may be put.

        An entry of a producer is decided after those before it.
        """
        is_listed = False
        while True:
            append.fail_unknown()  # before the entries behind them are decided
            firsts = first_of_producers(append.entries, append.waiting())
            decisions = {index: self.decision(append.entries[index]) for index in firsts}
            decided = {index: each for index, each in decisions.items() if each is not None}
            if not decided:
                break
            if not is_listed and any(map(may_be_short, decided.values())):
                # Other processes may have appended the entries that these follow.
                self._tail.doubt()
                self._refresh(append)
                is_listed = True
                continue
            for index, decision in decided.items():
                append.decide(index, decision)
        append.forget_unseen()
        if self._tail.state.is_ended:
            append.fail(self._directory.ended())
        self._make_durable(append)
        return bool(append.waiting())

    def decision(self, entry: StripeEntry) -> int | SparkLogError | None:
        """Decide whether an entry may be in the next object (`StripeState.decide`).

        A stripe that has ended refuses for good only what its state fences: the partition may have
        got more since, elsewhere.
        """
        state = self._tail.state
        decision = state.decide(
            entry,
            now_us=self._tail.storage_us,  # not this machine's clock, which may be days ahead
            expiration_ms=self._directory.config.producer_id_expiration_ms,
            where=self._directory.path,
        )
        is_final = isinstance(decision, int | InvalidProducerEpochError)
        return decision if is_final or not state.is_ended else None

    def _make_durable(self, append: _Append) -> None:
        """Make objects durable that an earlier try, perhaps of another process, has put."""
        if append.needs_sync and self._directory.config.flush_on_append:
            try:
                self._directory.store.sync(self._directory.path)
            except StorageError as error:
                append.on_not_durable(error)
        append.needs_sync = False

    # --- the put ----------------------------------------------------------------------------------

    def _put(self, append: _Append, compression: str) -> None:
        """Put an object of the entries that wait under the next number, and learn its outcome."""
        directory, tail = self._directory, self._tail
        staged, chosen, entries = append.staged(compression, tail.state.leader_epochs)
        number = tail.state.next_number
        if not number:
            directory.check_root()
        was_put = staged.append_id in append.puts
        append.on_put(staged.append_id, chosen, number)
        # Before the put: a pause after it must not make the observation look newer than it is.
        asked_ms = self._clock.monotonic_ms()
        try:
            directory.store.put_if_absent(
                directory.file_path(number), staged.staged, sync=directory.config.flush_on_append
            )
        except AlreadyExistsError:
            self.on_lost_race(append)
        except UnknownOutcomeError:
            self.on_unknown_outcome(append)
        except StorageError:
            if not was_put:
                append.puts.pop(staged.append_id)  # nothing is visible of this put
            raise
        else:
            if self.is_final():
                append.puts.clear()  # the others had this number, too
                self._on_first(number)
                append.succeed(chosen, entries.headers, tail.on_own_object(entries, asked_ms))
                self._count(entries)
                if self._on_put is not None:
                    with self._directory.suppressed.suppress(
                        "own object", self._directory.path, StorageError
                    ):
                        self._on_put(number, staged)
                return
            _log.debug("%s: the put of %d took too long to count", directory.path, number)
            self.on_unknown_outcome(append)
        append.check_age()

    def is_final(self) -> bool:
        """Return whether a put that succeeded counts: its number was not used and freed."""
        return self._tail.is_recent

    def on_lost_race(self, append: _Append) -> None:
        """Take in the object that has the number, and those behind it."""
        self._is_contended = True
        self._refresh(append)

    def on_unknown_outcome(self, append: _Append) -> None:
        """List the stripe, and take in its objects: one of them may be the one that was put."""
        append.on_lost_answer()
        self._tail.doubt()
        self._refresh(append)

    def _count(self, entries: EntryDirectory) -> None:
        self._objects += 1
        self._entries += len(entries)

    def _refresh(self, append: _Append) -> None:
        """Take in what others have appended, and settle the puts of an append."""
        tail = self._tail
        tail.refresh()
        if append.puts and tail.state.next_number > append.put_number:
            append.settle(was_seen=tail.taken_from <= append.put_number)

    def on_object(self, found: StripeObject, offsets: np.ndarray) -> None:
        """Count an object, and recognise one that this append has put."""
        self._count(found.directory)
        append = self._append
        if append is not None and found.append_id in append.puts:
            self._on_first(found.number)
            chosen = append.puts[found.append_id]
            append.succeed(chosen, found.directory.headers, offsets, is_duplicate=True)

    def _on_first(self, number: int) -> None:
        if not number:
            self._directory.create_existence_marker()


class _Append:
    """One append: the results so far, and the puts whose outcome is not known.

    Attributes:
        entries: the entries.
        results: the result of each entry that is decided.
        puts: append id of an object that was put, and may be in the stripe now or later → indexes
            of its entries. They all were put under one number.
        put_number: this number.
        needs_sync: whether entries were found that another process may not have synced.
    """

    def __init__(self, directory: StripeDirectory, entries: Sequence[StripeEntry]) -> None:
        self.results: list[AppendResult] = [None] * len(entries)
        self.puts: dict[str, Sequence[int]] = {}
        self.put_number = -1
        self.needs_sync = False
        self._directory = directory
        self._waiting = dict.fromkeys(range(len(entries)))
        self._unseen: set[int] = set()
        self._found: list[int] = []
        self._lost_answers = 0
        self._began_ms = directory.clock.monotonic_ms()
        self._staged: tuple[StagedSegment, Sequence[int], EntryDirectory] | None = None
        self._validator = LogValidator(directory.config, directory.clock)
        self.entries = [self._validated(index, each) for index, each in enumerate(entries)]

    def waiting(self) -> Sequence[int]:
        """Return the indexes of the entries without a result, in order."""
        return tuple(self._waiting)

    def staged(
        self, compression: str, leader_epochs: Mapping[int, int]
    ) -> tuple[StagedSegment, Sequence[int], EntryDirectory]:
        """Return an object of the entries that may be put together, and their indexes.

        While these stay the same, it is the same object: the loser of a race puts the same bytes
        under the next number.

        Args:
            compression: the codec to use if the topic's ``compression.type`` is ``producer``.
            leader_epochs: the leader epoch of each partition that has one above 0. They do not
                change before the stripe ends.

        Raises:
            StorageError: the object cannot be staged.
        """
        chosen = entries_of_one_object(self.entries, self._waiting)
        if self._staged is not None and self._staged[1] == chosen:
            return self._staged
        self.discard()
        directory = self._directory
        of_topic = directory.config.compression_type
        writer = SegmentWriter(
            directory.store,
            directory.path,
            topic_id=directory.topic_id,
            partition=directory.stripe,
            compression=compression if of_topic == "producer" else of_topic,
            validator=self._validator,
            is_stripe=True,
        )
        try:
            entries = writer.write_entries(
                [self.entries[index].content for index in chosen],
                [self.entries[index].partition for index in chosen],
                [self.entries[index].leader_epoch(leader_epochs) for index in chosen],
                directory.clock.time_us(),
            )
            self._staged = writer.finish(), chosen, entries
        except BaseException:
            writer.discard()
            raise
        return self._staged

    def discard(self) -> None:
        """Delete the staged object. What was put stays."""
        if self._staged is not None:
            self._staged[0].discard()
            self._staged = None

    # --- results ----------------------------------------------------------------------------------

    def succeed(
        self,
        chosen: Sequence[int],
        headers: Sequence[BatchHeader],
        offsets: np.ndarray,
        *,
        is_duplicate: bool = False,
    ) -> None:
        """Set the offsets of entries that are in the stripe."""
        for index, header, offset in zip(chosen, headers, offsets.tolist(), strict=True):
            self._set(
                index,
                LogAppendInfo(
                    offset,
                    offset + header.record_count - 1,
                    is_duplicate,
                    header.max_timestamp_us if header.timestamp_type else NO_TIMESTAMP,
                    header.leader_epoch,
                ),
            )
        if is_duplicate:
            self._found += chosen
            self.needs_sync = True

    def decide(self, index: int, decision: int | SparkLogError) -> None:
        """Set the result of an entry that is in the stripe already, or is refused."""
        if not isinstance(decision, int):
            # What was put may be too old for the state to show it.
            is_unseen = index in self._unseen
            self._set(index, self._unknown(str(decision)) if is_unseen else decision)
            return
        self._found.append(index)
        self.needs_sync = True
        if decision == UNKNOWN_OFFSET:
            self._set(index, None)
            return
        last_offset = decision + self.entries[index].record_count - 1
        self._set(index, LogAppendInfo(decision, last_offset, is_duplicate=True))

    def _set(self, index: int, result: AppendResult) -> None:
        self.results[index] = result
        self._waiting.pop(index, None)
        self._unseen.discard(index)

    # --- what is not known ------------------------------------------------------------------------

    def on_put(self, append_id: str, chosen: Sequence[int], number: int) -> None:
        """Record an object before it is put."""
        self.puts[append_id] = chosen
        self.put_number = number

    def on_lost_answer(self) -> None:
        """Count a put whose outcome is not known."""
        self._lost_answers += 1

    def settle(self, *, was_seen: bool) -> None:
        """Forget the puts: their number is used, and no other number can have their objects.

        Args:
            was_seen: whether the object of the number was taken in. If the number went home before
                it was read, only the producer state shows what it had.
        """
        if not was_seen:
            self._unseen.update(
                index for chosen in self.puts.values() for index in chosen if index in self._waiting
            )
        self.puts.clear()

    def fail_unknown(self) -> None:
        """Give up entries that may be in the stripe, and that the producer state cannot show."""
        for index in tuple(self._unseen):
            content = self.entries[index].content
            if isinstance(content, BatchAppend) and content.producer is None:
                self._set(index, self._unknown("its object went home before it could be read"))

    def forget_unseen(self) -> None:
        """Put entries again that the producer state has not shown."""
        self._unseen.clear()

    def check_age(self) -> None:
        """Check that what was put, and was not found, may be put again.

        Raises:
            UnknownOutcomeError: too many answers were lost, or the append is so old that the stripe
                may have forgotten its producers.
        """
        if not self._lost_answers:
            return
        age_ms = self._directory.clock.monotonic_ms() - self._began_ms
        expiration_ms = self._directory.config.producer_id_expiration_ms
        if age_ms >= expiration_ms / 2 or self._lost_answers > _MAX_LOST_ANSWERS:
            raise self._unknown(f"{self._lost_answers} answers were lost in {age_ms:.0f} ms")

    def fail(self, error: SparkLogError) -> None:
        """Give up all entries that wait: nothing was appended of those that were never put."""
        may_be_put = {index for chosen in self.puts.values() for index in chosen} | self._unseen
        for index in self.waiting():
            self._set(index, self._unknown(str(error)) if index in may_be_put else error)

    def on_not_durable(self, error: StorageError) -> None:
        """Report that entries that were found may be removed by a power cut."""
        for index in self._found:
            self.results[index] = self._unknown(f"it could not be synced: {error}", visible=True)

    def _unknown(self, reason: str, *, visible: bool = False) -> UnknownOutcomeError:
        path = self._directory.path
        return UnknownOutcomeError(
            f"{path}: it is not known whether the records are in the stripe: {reason}. Read the "
            f"end of their partition to find out",
            path=path,
            is_visible=visible,
        )

    def _validated(self, index: int, entry: StripeEntry) -> StripeEntry:
        if not isinstance(entry.content, BatchAppend):
            return entry
        try:
            content = validated_batch(entry.content, self._validator)
        except SparkLogError as error:
            self._set(index, error)
            return entry
        return entry if content is entry.content else replace(entry, content=content)
