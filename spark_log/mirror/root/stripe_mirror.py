"""`StripeMirror`: copies one stripe of a root to another root, object by object.

The target's topic has the source's id and number of stripes, and its stripe gets the source's
objects under the same numbers. The offsets of all records follow from these objects, so they are
the same, and one put copies the records of many partitions.

If objects that the target does not have were freed in the source, their records are at home there:
the segments of their partitions are copied, and then the home marker. A crash at any point leaves a
prefix of the source's stripe, or segments at home whose marker is not put yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from spark_log.errors import AlreadyExistsError, CorruptRecordError, NotFoundError
from spark_log.log import DivergedReplicaError, Lag, LocalLog, PartitionLog
from spark_log.log.chain import LeaderFailedError, ReplicaFetcher
from spark_log.log.stripe import StripeDirectory, StripeObject, StripeTail
from spark_log.mirror.root.copied_partition import CopiedPartition
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_ROUNDS = 3
"""Number of times that one copy begins again since objects were freed in the source meanwhile."""


@dataclass(frozen=True, slots=True)
class StripedPartition:
    """A partition of the stripe, on both sides.

    Attributes:
        source: the segments at home in the source.
        target: the segments at home in the target.
        target_log: the partition's log in the target.
    """

    source: LocalLog
    target: LocalLog
    target_log: PartitionLog


class StripeMirror:
    """Copies one stripe of the source to the target repeatedly. Not thread-safe.

    Between two copies it remembers both stripes. A copy that finds nothing new only asks each for
    its next object. The target's log starts follow the source's when they are listed: after half of
    ``file.delete.delay.ms`` at the latest.
    """

    def __init__(
        self,
        topic: str,
        source: StripeDirectory,
        target: StripeDirectory,
        partitions: Mapping[int, StripedPartition],
        on_copied: Callable[[int], None],
    ) -> None:
        """Return the mirror of a stripe; no storage is accessed yet.

        Args:
            topic: the topic's name.
            source: the stripe that is read.
            target: the stripe that gets the objects.
            partitions: the partitions of the stripe, by number.
            on_copied: called with the size of each object and segment after it was copied.
        """
        self._topic = topic
        self._source = StripeTail(source, self._on_object)
        self._target = StripeTail(target)
        self._from, self._to = source, target
        self._partitions = partitions
        self._on_copied = on_copied
        self._objects: dict[int, dict[int, int]] = {}
        self._freed_below = 0
        self._is_compared = False
        self._starts: dict[int, int] = {}
        self._starts_ms = float("-inf")
        self._copied: dict[int, tuple[int, int]] = {}

    def copy(self) -> list[CopiedPartition]:
        """Copy the objects before the first one that has records of an open transaction.

        Returns:
            The results, one per partition.

        Raises:
            DivergedReplicaError: another program has written to the target.
            CorruptRecordError: the source is damaged. The damage was not copied.
            SparkLogError: one of the two stripes cannot be read or written. Copied objects stay.
        """
        self._copied = {}
        for _ in range(_ROUNDS):
            self._source.refresh()
            self._target.refresh()
            self._check_is_prefix()
            try:
                self._copy()
                break
            except NotFoundError as error:  # freed in the source, since its records are at home
                _log.debug("%s: begins again: %s", self._from.path, error)
                self._source.advance_home()
                self._freed_below = self._source.home_number
        self._follow_starts()
        return [self._result(partition) for partition in sorted(self._partitions)]

    # --- objects ---------------------------------------------------------------------------------

    def _on_object(self, found: StripeObject, offsets: np.ndarray) -> None:
        """Remember which partitions an object of the source has, each with its first offset."""
        self._objects[found.number] = {
            partition: int(offsets[entries.start])
            for partition, entries in found.directory.groups()
        }

    def _copy(self) -> None:
        """Copy what can be copied.

        Raises:
            NotFoundError: the source has freed an object meanwhile.
        """
        limit = self._first_undecided()
        home = max(self._source.taken_from, self._freed_below)
        if self._target.state.next_number < home:
            if limit < home:
                return  # a transaction with records at home is open
            self._copy_home(home)
        for number in range(self._target.state.next_number, limit):
            self._copy_object(number)
        for number in [each for each in self._objects if each < self._target.state.next_number]:
            del self._objects[number]

    def _first_undecided(self) -> int:
        """Return the number of the first object that has records of an open transaction.

        It is the number after the last object if no transaction is open, and 0 if one is open that
        has records at home.
        """
        state = self._source.state
        limit = state.next_number
        for partition, producers in state.partitions():
            first_open = producers.transactions.first_open
            if first_open is None:
                continue
            before = [
                number
                for number, offsets in self._objects.items()
                if offsets.get(partition, first_open.first_offset + 1) <= first_open.first_offset
            ]
            limit = min(limit, max(before, default=0))
        return limit

    def _copy_object(self, number: int) -> None:
        found = self._from.open(number)
        path = self._from.file_path(number)
        if found is None:
            raise NotFoundError(f"{path} was freed", path=path)
        if self._from.store.is_local:  # others would transfer the bytes twice
            for _ in found.read(range(len(found.directory))):
                pass
        data = self._from.store.open_buffer(path)
        asked_ms = self._to.clock.monotonic_ms()
        try:
            self._to.store.put_if_absent(self._to.file_path(number), data)
        except AlreadyExistsError:
            self._check_is_copy(number, found)
        self._target.on_own_object(found.directory, asked_ms)
        self._on_copied(data.size)
        rows = found.directory.headers[-1].last_offset_delta + 1
        for partition, entries in found.directory.groups():
            headers = found.directory.headers[entries.start : entries.stop]
            part = sum(header.record_count for header in headers)
            self._count(partition, data.size * part // rows)

    def _check_is_copy(self, number: int, found: StripeObject) -> None:
        """Check that the target's object of a number is the source's: another mirror put it."""
        there = self._to.open(number)
        if there is None or there.append_id == found.append_id:
            return
        raise self._diverged(f"it has another object {number} than the source", number)

    def _check_is_prefix(self) -> None:
        """Check once that the last object of the target is the source's, if both still exist."""
        number = self._target.state.next_number
        if number > self._source.state.next_number:
            raise self._diverged(
                f"it has objects up to {number - 1}, and the source up to "
                f"{self._source.state.next_number - 1}",
                self._source.state.next_number,
                is_ahead=True,
            )
        if not self._is_compared and number:
            found = self._from.open(number - 1)
            if found is not None:
                self._check_is_copy(number - 1, found)
        self._is_compared = True

    def _diverged(self, what: str, number: int, *, is_ahead: bool = False) -> DivergedReplicaError:
        return DivergedReplicaError(
            f"stripe {self._to.stripe} of topic {self._topic!r} in the target has diverged: "
            f"{what}: another program has written to the target. Delete the topic in the "
            f"target, or exclude it",
            offset=number,
            is_ahead=is_ahead,
        )

    # --- at home ---------------------------------------------------------------------------------

    def _copy_home(self, number: int) -> None:
        """Copy the segments before a home marker of the source, and then the marker.

        Raises:
            NotFoundError: the marker was freed, below a newer one.
        """
        path = self._from.file_path(number, is_home=True)
        data = self._from.store.open_buffer(path)
        state = self._from.read_home(number)
        for partition, end in sorted(state.ends().items()):
            both = self._partitions.get(partition)
            if both is None:
                raise CorruptRecordError(
                    f"{path} has partition {partition}, which the topic does not have in this "
                    f"stripe. Restore the home marker from a copy",
                    path=path,
                )

            def count(done_bytes: int, partition: int = partition) -> None:
                self._count(partition, done_bytes)
                self._on_copied(done_bytes)

            try:
                fetcher = ReplicaFetcher(both.source, both.target, count, check_crcs=True)
                fetcher.fetch(both.target.observe().log_end_offset, end)
            except LeaderFailedError as failed:
                raise failed.error from failed
        with suppress(AlreadyExistsError):
            self._to.store.put_if_absent(self._to.file_path(number, is_home=True), data)
        self._target.begin_at(number)

    def _follow_starts(self) -> None:
        """Move the log starts of the target to those of the source, as far as it has records."""
        clock = self._from.clock
        if clock.monotonic_ms() - self._starts_ms < self._from.valid_ms:
            return
        self._starts_ms = clock.monotonic_ms()
        for partition, both in self._partitions.items():
            start = both.source.observe().log_start_offset
            start = min(start, self._target.state.end_offset(partition))
            if start > self._starts.get(partition, 0):
                both.target_log.move_start(start)
                self._starts[partition] = start
                self._target.doubt()  # for this, the stripe may have been taken home

    # --- results ---------------------------------------------------------------------------------

    def _count(self, partition: int, done_bytes: int) -> None:
        size_bytes, count = self._copied.get(partition, (0, 0))
        self._copied[partition] = size_bytes + done_bytes, count + 1

    def _result(self, partition: int) -> CopiedPartition:
        producers = self._source.state.producers(partition)
        end = 0
        if producers is not None:
            first_open = producers.transactions.first_open
            end = producers.offset if first_open is None else first_open.first_offset
        offset = self._target.state.end_offset(partition)
        lag = Lag.of(offset, self._starts.get(partition, 0), end).unread
        tp = TopicPartition(self._topic, partition)
        return CopiedPartition(tp, *self._copied.get(partition, (0, 0)), offset, lag)
