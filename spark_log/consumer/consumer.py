"""`Consumer`: reads topics as kafka-python's KafkaConsumer does. No JVM, no server."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import pyarrow as pa

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import ConsumerConfig
from spark_log.consumer.assignment import Assignment
from spark_log.consumer.auto_commit import AutoCommit
from spark_log.consumer.committer import Committer
from spark_log.consumer.consumer_records import (
    AnyDeserializer,
    RecordFactory,
    TableFactory,
    checked_deserializers,
)
from spark_log.consumer.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.fetched_batch import FetchedRows
from spark_log.consumer.fetcher import Fetcher, Taken
from spark_log.consumer.group_membership import GroupMembership
from spark_log.consumer.log_lookup import LogLookup
from spark_log.consumer.membership import ConsumerRebalanceListener, LoneMember, Membership
from spark_log.consumer.single_thread import SingleThread
from spark_log.consumer.storage_calls import StorageCall, StorageCalls
from spark_log.consumer.subscription import Subscription, checked_partitions
from spark_log.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    RecordDeserializationError,
    SparkLogError,
    UnknownOutcomeError,
    WakeupError,
    check_unicode,
)
from spark_log.metadata import MetadataImage
from spark_log.metadata.cluster import open_cluster
from spark_log.metadata.metadata_log import DIRECTORY as METADATA_DIRECTORY
from spark_log.storage import StorageOptions
from spark_log.storage.deadline import Deadline, LimitedCall, call_within
from spark_log.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

_log = logging.getLogger(__name__)

_LEAST_MS = 10.0
"""A timeout with a fraction that is less than this was hardly meant in milliseconds."""

_has_warned_of_seconds = False

_Answer = TypeVar("_Answer")

_API_TIMEOUT: Final = "default.api.timeout.ms"

Records = dict[TopicPartition, list[ConsumerRecord]]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object]


class ConsumerInterceptor(Protocol):
    """Sees what a consumer is about to hand out, and what it committed (KIP-42)."""

    def on_consume(self, records: Records) -> Records:
        """Return the records that `Consumer.poll` is to return in place of these."""

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets were committed."""


class Consumer:
    """Reads records of one cluster root, one thread at a time.

    Names, signatures and meaning are those of kafka-python's KafkaConsumer. Consumers that
    subscribe with the same ``group_id`` share the partitions: where one ends, others go on at what
    it committed last. Without a ``group_id`` one has every partition for itself.

    What is handed out of a partition has no gap and nothing twice, in the order of the offsets. A
    crash forgets the position; a consumer with a ``group_id`` goes on where it last committed.
    """

    def __init__(
        self,
        *topics: str,
        root: str | os.PathLike[str] | None = None,
        group_id: str | None = None,
        storage_options: StorageOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        **config: object,
    ) -> None:
        """Open a root, and subscribe to topics if any are given.

        Args:
            topics: see `subscribe`.
            root: a path or URL; has to be given.
            group_id: in whose name offsets are committed, and with whom subscribed topics are
                shared; without one neither.
            storage_options: for the file system; never shown.
            clock: tells ages and intervals.
            key_deserializer: called with a key's bytes, or an object with ``deserialize(topic,
                bytes)``; null stays None. Not used by `poll_table`.
            value_deserializer: likewise.
            interceptors: called in this order; what they raise is logged. Not by `poll_table`.
            config: keys of `ConsumerConfig`, in snake_case.

        Raises:
            InvalidConfigurationError: a key is unknown, or its value not possible.
            InvalidGroupIdError: the group id is empty, or not Unicode text.
            RootNotFoundError, InvalidRootError, UnsupportedStoreError: see `Cluster`.
            KafkaTimeoutError, StorageUnavailableError: the storage does not answer, or not within
                ``default.api.timeout.ms``; try again.
        """
        self.config = ConsumerConfig.parse(config)
        if group_id is not None and (not isinstance(group_id, str) or not group_id):
            raise InvalidGroupIdError(f"group_id is {group_id!r}; give a name, or None for none")
        if group_id is not None:
            check_unicode("group_id", group_id, InvalidGroupIdError)
        self.group_id = group_id
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        if topics and isinstance(topics[0], Mapping):
            raise InvalidConfigurationError(
                "settings are keyword arguments, not a dict: "
                "Consumer('topic', root='/data/log', group_id='…', auto_offset_reset='earliest')"
            )
        self._cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=self.config.default_api_timeout_ms,
            setting=_API_TIMEOUT,
            request_timeout_ms=self.config.request_timeout_ms,
        )
        self._clock = clock
        # Of what the operating system reads it decides how long that takes.
        self._calls = None if self._cluster.store.is_mapped else StorageCalls()
        self._update: StorageCall | None = None
        self._lookup = LogLookup(self._cluster)
        self._fetcher = Fetcher(
            self._cluster.store,
            self.config,
            also_watched=METADATA_DIRECTORY,
            now_ms=clock.monotonic_ms,
        )
        subscription = Subscription()
        self._membership: Membership = LoneMember()
        self._group_metrics = CoordinatorMetrics(clock.monotonic_ms)
        self._committer = None
        if group_id is not None:
            self._membership = GroupMembership(
                self._cluster, group_id, self.config, self._fetcher.wake, self._group_metrics
            )
            self._committer = Committer(
                self._cluster,
                group_id,
                self._membership,
                subscription,
                self._group_metrics.commits,
            )
        self._auto_commit = AutoCommit(
            subscription,
            self._committer if self.config.enable_auto_commit else None,
            self.config.auto_commit_interval_ms,
            clock,
        )
        self._assignment = Assignment(
            self._cluster,
            self.config,
            self._fetcher,
            self._lookup,
            subscription,
            self._membership,
            self._committer,
            self._auto_commit,
            self._group_metrics,
            **({} if self._calls is None else {"in_caller": self._calls.in_caller}),
        )
        self._records = RecordFactory(*deserializers)
        self._tables = TableFactory()
        self._deserializers = (key_deserializer, value_deserializer)
        self._interceptors = tuple(interceptors)
        self._thread = SingleThread()
        self._iterated: _Iterated | None = None
        self._is_woken = False
        self._is_closed = False
        self._counts = {"polls": 0, "records": 0, "bytes": 0}
        # A consumer that is dropped without being closed leaves no thread behind.
        self._finalizer = weakref.finalize(self, _end_threads, self._fetcher, self._calls)
        if topics:
            self.subscribe(topics)

    # --- what is read ----------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of those before; none: `unsubscribe`.

        Raises:
            IllegalStateError: `subscribe` was called, or the consumer is closed.
            UnknownTopicOrPartitionError: one of them does not exist; nothing is changed.
        """
        wanted = checked_partitions(partitions)
        with self._use():
            if not wanted:
                self.unsubscribe()
                return
            self._finish_update("assign")
            self._give_back()
            self._auto_commit.commit_now(self.config.default_api_timeout_ms)
            self._within("assign", lambda: self._assignment.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read now; of a subscription, after the first poll."""
        with self._use():
            return set(self._assignment.subscription.partitions)

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, in place of what was subscribed to before.

        Partitions are assigned by the next `poll`; so are those that a topic gets later, and those
        of a topic that is created later. A topic that is deleted leaves the assignment, and when
        it is created again it is another one.

        With a ``group_id`` the next `poll` joins the group. Partitions come and go with its
        members, always inside of a poll, and none is read by two at a time. Who does not poll for
        ``max.poll.interval.ms``, or is silent for ``session.timeout.ms``, loses what it has.

        Args:
            topics: their names. For one that does not exist a warning is logged.
            pattern: a regular expression in place of names, matched from the start of a name.
            listener: told when the assignment changes.

        Raises:
            IllegalStateError: partitions were assigned, or both are given.
            ValueError, TypeError: neither is given; they are not what they should be.
            InvalidTopicError: no topic can have such a name.
        """
        with self._use():
            self._finish_update("subscribe")
            self._give_back()
            self._auto_commit.commit_now(self.config.default_api_timeout_ms)
            self._assignment.subscription.subscribe(topics, pattern, listener)
            self._assignment.request_update()

    def subscription(self) -> set[str] | None:
        """Return the topics that are subscribed to, None without a subscription."""
        with self._use():
            subscription = self._assignment.subscription
            if not subscription.is_subscribed:
                return None
            exclude = self.config.exclude_internal_topics
            return set(subscription.topics(self._image("subscription"), exclude_internal=exclude))

    def unsubscribe(self) -> None:
        """Read nothing; what was consumed is committed first, where that goes by itself.

        A listener is told, then the group; a static member's place waits for it.
        """
        with self._use():
            self._finish_update("unsubscribe")
            self._give_back()
            self._auto_commit.commit_now(self.config.default_api_timeout_ms)
            self._within("unsubscribe", self._assignment.clear)

    # --- reading ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return the next records, waiting for some if there are none.

        As in Kafka, reading ahead begins with the first poll: with ``timeout_ms=0`` that one mostly
        returns nothing. On an object store, joining the group and finding positions goes on beside
        it where that takes longer than ``timeout_ms``, and the next poll waits on for it.

        Args:
            timeout_ms: how long to wait; then the answer is empty, also where the storage does not
                answer. Milliseconds: for a float below 10, which looks like seconds, there is a
                warning.
            max_records: at most so many; None: ``max.poll.records``.

        Raises:
            RecordDeserializationError: a record cannot be deserialized. Those before it were
                returned; the consumer stays in front of it until it seeks.
            OffsetOutOfRangeError: and ``auto.offset.reset`` is ``none``.
            NoOffsetForPartitionError: nothing says where to begin.
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            CorruptRecordError: stored bytes are damaged; seek to leave them out.
            WakeupError: `wakeup` was called.
            FencedInstanceIdError: another process has taken its place in the group.
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group does not take it in.
            IllegalStateError: nothing is assigned or subscribed to.
        """
        _warn_of_seconds(timeout_ms)
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._use():
            return self._poll(timeout_ms, limit)

    def poll_table(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Return the next records as an Arrow table, waiting for some if there are none.

        Nothing is copied: keys, values, timestamps and headers are what was read, mapped where the
        root is local and the segments not compressed.

        Args:
            timeout_ms: how long to wait; then the table is empty.
            max_records: at most so many rows; None: all that was fetched ahead
                (``fetch.max.bytes``).

        Returns:
            Columns of the Spark source (`TABLE_SCHEMA`): key, value: binary; topic: string;
            partition: int32; offset: int64; timestamp: timestamp[us, UTC]; timestampType: int32;
            headers: list<struct<key: string, value: binary>>. Rows of one partition are in order.

        Raises:
            SparkLogError: as `poll`, but for deserializers, which are not called.
        """
        _warn_of_seconds(timeout_ms)
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._use():
            taken = self._take(timeout_ms, max_records)
            table = self._tables.table(taken.rows)
            self._assignment.advance(taken.positions)
            self._count(taken.rows)
            return table

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; ends when none came for ``consumer.timeout.ms``, or closed."""
        if self._is_closed:
            raise StopIteration
        with self._use():
            while True:
                if self._iterated is not None:
                    record = self._iterated.next(self._assignment)
                    if record is not None:
                        return record
                    self._iterated = None
                timeout_ms = self.config.consumer_timeout_ms
                waits_ms = math.inf if timeout_ms < 0 else timeout_ms
                self._poll(waits_ms, self.config.max_poll_records, iterates=True)
                if self._iterated is None:
                    raise StopIteration

    def _poll(self, timeout_ms: float, limit: int, *, iterates: bool = False) -> Records:
        """Return records; an iteration gets them in ``_iterated``, and positions stay."""
        taken = self._take(timeout_ms, limit)
        records: Records = {}
        refused: dict[TopicPartition, RecordDeserializationError] = {}
        for rows in taken.rows:
            if rows.partition not in refused:
                made, error = self._records.records(rows)
                if error is not None:
                    refused[rows.partition] = error
                if made:
                    records.setdefault(rows.partition, []).extend(made)
        for named, error in refused.items():  # stay in front of it
            taken.positions[named] = error.offset
            self._fetcher.seek(named, error.offset)
        if refused and not records:
            raise next(iter(refused.values()))
        self._count(taken.rows)
        if self._interceptors:
            records = self._intercepted(records)
        if not iterates:
            self._assignment.advance(taken.positions)
        elif taken.rows:
            self._iterated = _Iterated(records, taken.positions)
        return records

    def _take(self, timeout_ms: float, max_records: int | None) -> Taken:
        """Return fetched rows; positions stay where they are until those are handed out."""
        if self._assignment.subscription.is_empty:
            raise IllegalStateError(
                "the consumer reads nothing: call subscribe() or assign() before poll()"
            )
        self._counts["polls"] += 1
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if not self._is_up_to_date(deadline_ms):
            return Taken([], {})
        self._give_back()
        self._auto_commit.commit_if_due()
        while True:
            self._check_wakeup()
            if not self._does(self._assignment.update, deadline_ms, self._assignment.needs_update):
                return Taken([], {})
            left_ms = deadline_ms - self._clock.monotonic_ms()
            wait_ms = min(max(0.0, left_ms), self._assignment.next_update_ms())
            taken = self._assignment.take(max_records, wait_ms)
            if taken.rows:
                return taken
            self._assignment.advance(taken.positions)  # behind what is not shown
            if taken.failure is not None:
                recover = partial(self._assignment.recover, *taken.failure)
                if not self._does(recover, deadline_ms):
                    return Taken([], {})
            if left_ms <= 0:
                self._check_wakeup()
                return Taken([], taken.positions)

    # --- what waits for the storage --------------------------------------------------------------

    def _does(
        self,
        call: Callable[[], object],
        deadline_ms: float,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Do a part of a poll, and return whether it is done: else it goes on beside.

        Args:
            call: the part.
            deadline_ms: until when to wait for it.
            is_needed: asked first, where it would be done beside.
        """
        if self._calls is None or self._calls.is_serving:
            call()
            return True
        if not is_needed():
            return True
        self._update = self._calls.begin(call)
        return self._is_up_to_date(deadline_ms)

    def _is_up_to_date(self, deadline_ms: float) -> bool:
        """Return whether what a poll began is done, after waiting for it.

        Raises:
            WakeupError: `wakeup` was called.
            SparkLogError: what came of it.
        """
        if self._calls is None or self._calls.is_serving:
            return True
        # Another call, too, may have been given up by who waited for it.
        while self._calls.current() is not None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            running = self._calls.current()
            if running is None or self._calls.wait(running, max(0.0, left_ms) / 1000):
                continue
            self._check_wakeup()
            if left_ms <= 0:
                return False
        update, self._update = self._update, None
        if update is not None:
            update.result()
        return True

    def _within(
        self, what: str, call: Callable[[], _Answer], timeout_ms: float | None = None
    ) -> _Answer:
        """Do what may wait for the storage, and changes what the consumer knows, in limited time.

        Raises:
            KafkaTimeoutError: the time is over; what is under way ends by itself.
            UnknownOutcomeError: likewise, and it may have changed something.
        """
        calls = self._calls
        if calls is None or calls.is_serving:
            return call()  # in a listener: the poll that called it is waiting
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = Deadline(what, _API_TIMEOUT, limit_ms)
        if not calls.wait_until_still(deadline.left_s()):
            raise self._busy_error(deadline)
        if calls.is_standing_still:  # for a listener that only a poll runs
            return call_within(limit_ms, call, what=what, setting=_API_TIMEOUT)
        running = calls.begin(call, deadline)
        while not calls.wait(running, deadline.left_s()):
            if not deadline.left_s():
                raise deadline.error()
        return running.result()  # type: ignore[return-value]

    def _beside(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        """Do what may wait for the storage, and is for any thread, in limited time."""
        if self._calls is None:
            return call()
        timeout_ms = self.config.default_api_timeout_ms
        return call_within(timeout_ms, call, what=what, setting=_API_TIMEOUT)

    def _image(self, what: str) -> MetadataImage:
        return self._beside(what, self._cluster.image)

    def _wait_until_still(self, what: str) -> None:
        """Wait until nobody else changes what the consumer knows.

        Raises:
            KafkaTimeoutError: what a poll began waits for a storage that does not answer.
        """
        if self._calls is None or self._calls.is_serving:
            return
        deadline = Deadline(what, _API_TIMEOUT, self.config.default_api_timeout_ms)
        if not self._calls.wait_until_still(deadline.left_s()):
            raise self._busy_error(deadline)

    def _busy_error(self, deadline: Deadline) -> Exception:
        deadline.waits_for = (
            f"what an earlier call asked of the storage at {self._cluster.root}, which does not "
            f"answer"
        )
        return deadline.error()

    def _finish_update(self, what: str, timeout_ms: float | None = None) -> None:
        """Let what a poll began come to its end, listeners included.

        Raises:
            KafkaTimeoutError: it does not, in the time that there is.
        """
        if self._calls is None or self._calls.is_serving:
            return
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = Deadline(what, _API_TIMEOUT, limit_ms)
        while (running := self._calls.current()) is not None:
            if not self._calls.wait(running, deadline.left_s()) and not deadline.left_s():
                raise self._busy_error(deadline)
        update, self._update = self._update, None
        if update is not None:
            try:
                update.result()
            except SparkLogError as error:
                _log.info("what the last poll began has failed: %s", error)

    def _check_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("the consumer was woken up")

    def _give_back(self) -> None:
        """Fetch again what an iteration has not handed out, so that it is not left out."""
        if self._iterated is not None:
            for named in self._iterated.partitions():
                state = self._assignment.subscription.partitions.get(named)
                if state is not None and state.position is not None:
                    self._assignment.seek(named, state.position)
            self._iterated = None

    def _intercepted(self, records: Records) -> Records:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                _log.warning("an interceptor failed on_consume", exc_info=True)
        return records

    # --- positions -------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading a partition at an offset.

        Raises:
            IllegalStateError: it is not assigned.
            ValueError, TypeError: the offset is not a number from 0.
        """
        checked_partitions([partition])
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"offset {offset!r} is a {type(offset).__name__}; give an int")
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; offsets begin at 0")
        with self._use():
            self._wait_until_still("seek")
            self._give_back()
            self._assignment.seek(partition, offset)
            self._assignment.subscription.state(partition).is_sought = True

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these partitions, or of all; found by the next poll.

        Raises:
            IllegalStateError: one is not assigned, or none are.
        """
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of these partitions, or of all; found by the next poll.

        Raises:
            IllegalStateError: one is not assigned, or none are.
        """
        self._seek_to("latest", partitions)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that is handed out.

        Raises:
            IllegalStateError: it is not assigned.
            NoOffsetForPartitionError: nothing says where to begin.
        """
        checked_partitions([partition])
        with self._use():
            known = self._assignment.subscription.state(partition).position
            if known is not None:
                return known
            return self._within("position", lambda: self._assignment.position(partition))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until `resume`. They stay assigned.

        Raises:
            IllegalStateError: one is not assigned.
        """
        self._for_each(partitions, self._assignment.pause)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions.

        Raises:
            IllegalStateError: one is not assigned.
        """
        self._for_each(partitions, self._assignment.resume)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        with self._use():
            return self._assignment.subscription.paused()

    def _seek_to(self, policy: str, partitions: Sequence[TopicPartition]) -> None:
        checked = checked_partitions(partitions)
        with self._use():
            self._wait_until_still("seek")
            self._give_back()
            chosen = checked or list(self._assignment.subscription.partitions)
            if not chosen:
                raise IllegalStateError("no partitions are assigned to this consumer")
            for named in chosen:
                self._assignment.subscription.state(named)
            for named in chosen:
                self._assignment.reset(named, "earliest" if policy == "earliest" else "latest")

    def _for_each(
        self, partitions: Sequence[TopicPartition], call: Callable[[TopicPartition], None]
    ) -> None:
        checked = checked_partitions(partitions)
        with self._use():
            self._wait_until_still("pause or resume")
            self._give_back()
            for named in checked:
                self._assignment.subscription.state(named)
            for named in checked:
                call(named)

    # --- looking ---------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition; they need not be assigned.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or partition.
        """
        checked = checked_partitions(partitions)
        with self._use():
            ends = self._within("beginning_offsets", lambda: self._lookup.ends(checked))
            return {named: view.log_start_offset for named, view in ends.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset to be written in each partition; they need not be assigned.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or partition.
        """
        checked = checked_partitions(partitions)
        with self._use():
            ends = self._within("end_offsets", lambda: self._lookup.ends(checked))
            return {named: view.log_end_offset for named, view in ends.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time in each partition, None where there is none.

        Args:
            timestamps: milliseconds since the epoch, by partition; they need not be assigned.

        Raises:
            ValueError: a time is negative.
            UnknownTopicOrPartitionError: there is no such topic or partition.
        """
        times_us = {}
        for named, timestamp_ms in timestamps.items():
            checked_partitions([named])
            if timestamp_ms < 0:
                raise ValueError(f"{named}: time {timestamp_ms} is negative; give ms since 1970")
            times_us[named] = int(timestamp_ms) * 1000
        with self._use():
            return self._within(
                "offsets_for_times", lambda: self._lookup.offsets_for_times(times_us)
            )

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return how many offsets lie between the position and the end now, of these or of all.

        Raises:
            IllegalStateError: one is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._use():
            return self._within("lag", lambda: self._lag(checked))

    def _lag(self, checked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        chosen = checked or list(self._assignment.subscription.partitions)
        positions = {named: self._assignment.position(named) for named in chosen}
        ends = self._lookup.ends(chosen)
        return {named: max(0, ends[named].log_end_offset - positions[named]) for named in chosen}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the partition's end as the fetcher saw it last, None before it did.

        Raises:
            IllegalStateError: it is not assigned.
        """
        checked_partitions([partition])
        with self._use():
            self._assignment.subscription.state(partition)
            return self._fetcher.end_offset(partition)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions, None where there is no such topic."""
        with self._use():
            found = self._image("partitions_for_topic").find(topic)
            return None if found is None else set(found.partitions)

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        with self._use():
            return {topic.name for topic in self._image("topics").topics()}

    # --- committing ------------------------------------------------------------------------------

    def committed(
        self, partition: TopicPartition, metadata: bool = False
    ) -> int | OffsetAndMetadata | None:
        """Return what the group has committed for a partition, None where it has nothing.

        Args:
            partition: need not be assigned.
            metadata: return an `OffsetAndMetadata` in place of the offset.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            StorageError: the table of offsets cannot be read.
        """
        checked_partitions([partition])
        with self._use():
            committer = self._required_committer()
            found = self._beside("committed", committer.committed).get(partition)
            return found if found is None or metadata else found.offset

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit positions, all of them or none; durable on return.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            timeout_ms: how long to wait; None: ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            InvalidConfigurationError: a position's metadata is not Unicode text; nothing is done.
            UnknownTopicOrPartitionError: there is no such topic or partition; nothing is done.
            CommitFailedError: it could not be committed; of a member of a group also: it does not
                have one of the partitions any more, and others may read it again; of who does not
                subscribe: the group has members.
            UnknownOutcomeError: whether it was is not known; commit again.
            KafkaTimeoutError: the topics could not be looked up; nothing was committed.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        with self._use():
            future = self._submit_commit(offsets, None)
        try:
            future.result(limit_ms / 1000)
        except FutureTimeoutError:
            if future.done():  # it has failed by itself, for the same reason
                raise
            raise UnknownOutcomeError(
                f"the commit is not done after {limit_ms} ms, and still under way: the table of "
                f"offsets on {self._cluster.root} does not answer, or other commits come first; "
                f"committing the same again is harmless"
            ) from None

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """Commit as `commit` does, without waiting, after the commits before it.

        Args:
            offsets: see `commit`.
            callback: called with the offsets, and None or the error, on another thread.

        Returns:
            Done when the commit is.

        Raises:
            InvalidGroupIdError: the consumer has no group.
        """
        with self._use():
            return self._submit_commit(offsets, callback)

    def _submit_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> Future[None]:
        committer = self._required_committer()
        subscription = self._assignment.subscription
        if offsets is None:
            chosen = {
                named: OffsetAndMetadata(at) for named, at in subscription.positions().items()
            }
        else:
            chosen = dict(offsets)
            self._check_offsets(chosen)
        topic_ids = {
            named.topic: subscription.partitions[named].topic.topic_id
            for named in chosen
            if named in subscription.partitions
        }
        future = committer.commit(chosen, topic_ids)

        def tell(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                self._tell_committed(chosen)
            if callback is not None:
                callback(chosen, error if isinstance(error, Exception) else None)

        if callback is not None or self._interceptors:
            future.add_done_callback(tell)
        self._auto_commit.note(chosen)
        return future

    def _tell_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(dict(offsets))
            except Exception:
                _log.warning("an interceptor failed on_commit", exc_info=True)

    def _check_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        from spark_log.coordinator.offsets.rows import check_metadata

        checked_partitions(offsets)
        image = self._image("commit")
        for named, position in offsets.items():
            if not isinstance(position, OffsetAndMetadata):
                raise TypeError(
                    f"{named}: {position!r} is a {type(position).__name__}; give "
                    f"OffsetAndMetadata(offset)"
                )
            if position.offset < 0:
                raise ValueError(f"{named}: offset {position.offset} is negative")
            check_metadata(named, position)
            self._cluster.partition_log(image.topic(named.topic), named.partition)

    def _required_committer(self) -> Committer:
        if self._committer is None:
            raise InvalidGroupIdError(
                "offsets are committed in the name of a group: give the consumer a group_id"
            )
        return self._committer

    # --- living ----------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Let the poll that waits now, or the next one, raise `WakeupError`. For any thread."""
        self._is_woken = True
        self._fetcher.wake()
        if self._calls is not None:
            self._calls.wake()

    def forget_wakeup(self) -> None:
        """Undo a `wakeup` that nothing has noticed yet."""
        self._is_woken = False

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return what was counted so far, by group and name, as in Kafka.

        ``records-lag-max`` goes by the ends that the fetcher saw last. Of commits, joins,
        rebalances and heartbeats see `CoordinatorMetrics`; latencies are in milliseconds, and of
        all since the consumer was made. The group ``suppressed-errors`` counts failures that kept
        nothing from being done, such as of an index: all of them, and by what failed, what ever
        did. Each cause was logged once.
        """
        with self._use():
            positions = self._assignment.subscription.positions()
            lags = [
                max(0, end - at)
                for named, at in positions.items()
                if (end := self._fetcher.end_offset(named)) is not None
            ]
            return {
                "consumer-metrics": {"poll-total": self._counts["polls"]},
                "consumer-fetch-manager-metrics": {
                    "records-consumed-total": self._counts["records"],
                    "bytes-consumed-total": self._counts["bytes"],
                    **self._fetcher.figures(),
                    "records-lag-max": max(lags, default=0),
                },
                "consumer-coordinator-metrics": {
                    "assigned-partitions": len(self._assignment.subscription.partitions),
                    **self._group_metrics.figures(),
                    **self._membership.figures(),
                },
                "suppressed-errors": self._cluster.suppressed.figures(),
            }

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """End: commit what was consumed, where that goes by itself, and leave the group.

        Its partitions go to the others at once; a static member's wait for it. Harmless when done
        twice.

        Args:
            autocommit: whether to commit.
            timeout_ms: how long to wait for that; None: as long as it takes, and on an object store
                ``default.api.timeout.ms``. Where that does not answer the others of the group take
                this consumer for dead after ``session.timeout.ms``.
        """
        if self._is_closed:
            return
        if timeout_ms is None and self._calls is not None:
            timeout_ms = self.config.default_api_timeout_ms
        due_ms = math.inf if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        with self._use():
            try:
                self._end(autocommit, due_ms)
            finally:
                self._is_closed = True
                self._finalizer()
                self._assignment.subscription.partitions.clear()
                if self._committer is not None:
                    self._committer.close(waits=timeout_ms is None)
                for each in (*self._deserializers, *self._interceptors):
                    if callable(close := getattr(each, "close", None)):
                        close()

    def _end(self, autocommit: bool, due_ms: float) -> None:
        """Commit and leave the group, as far as the time goes; what is begun ends by itself."""

        def left_ms() -> float | None:
            if due_ms == math.inf:
                return None
            return max(0.0, due_ms - self._clock.monotonic_ms())

        calls = self._calls
        try:
            self._finish_update("close", left_ms())
        except KafkaTimeoutError as error:
            _log.warning("the consumer is closed, and leaves its group later: %s", error)
            assert calls is not None
            LimitedCall(partial(_leave_later, calls, self._membership))
            return
        self._give_back()
        try:
            if autocommit:
                self._auto_commit.commit_now(left_ms())
        finally:
            leave = partial(self._assignment.leave, left_ms())
            if calls is None or calls.is_serving:
                leave()
            else:
                leaving = calls.begin(leave)
                while not calls.wait(leaving, (left_ms() or 0.0) / 1000) and left_ms():
                    pass  # it was only woken up
                if leaving.is_done:
                    leaving.result()
                else:
                    _log.warning("the consumer is closed, and leaves its group later")
            if self._committer is not None and due_ms < math.inf:
                self._committer.wait(left_ms())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Close. After an exception nothing is committed: the record in hand may not be done."""
        self.close(autocommit=kind is None)

    def _use(self) -> SingleThread:
        if self._is_closed:
            raise IllegalStateError("the consumer is closed; make another one")
        return self._thread

    def _count(self, taken: Iterable[FetchedRows]) -> None:
        for rows in taken:
            self._counts["records"] += rows.count
            self._counts["bytes"] += rows.size_bytes


def _warn_of_seconds(timeout_ms: float) -> None:
    """Warn, once a process, of a timeout that was meant in seconds, as confluent-kafka has it."""
    global _has_warned_of_seconds  # noqa: PLW0603 - once a process
    if isinstance(timeout_ms, float) and 0 < timeout_ms < _LEAST_MS and not _has_warned_of_seconds:
        _has_warned_of_seconds = True
        warnings.warn(
            f"poll({timeout_ms!r}) waits for {timeout_ms:g} milliseconds, as in kafka-python: for "
            f"seconds, as in confluent-kafka, give poll(timeout_ms={timeout_ms * 1000:g})",
            stacklevel=3,
        )


def _end_threads(fetcher: Fetcher, calls: StorageCalls | None) -> None:
    """Let the threads end that belong to a consumer; one that waits ends with what it waits for."""
    if calls is not None:
        calls.close()
    fetcher.close()


def _leave_later(calls: StorageCalls, membership: Membership) -> None:
    """Leave the group once the storage has answered what was asked of it."""
    if calls.wait_until_still(math.inf):
        membership.leave()


class _Iterated:
    """Records that an iteration hands out one by one."""

    def __init__(self, records: Records, behind: Mapping[TopicPartition, int]) -> None:
        self._records = [(named, record) for named, found in records.items() for record in found]
        self._last = {named: found[-1].offset for named, found in records.items() if found}
        self._behind = behind
        self._at = 0

    def next(self, assignment: Assignment) -> ConsumerRecord | None:
        """Return the next record, and go on behind it; None: that was all."""
        if self._at >= len(self._records):
            assignment.advance(self._behind)  # also behind what an interceptor left out
            return None
        named, record = self._records[self._at]
        self._at += 1
        is_last = record.offset == self._last[named]
        assignment.advance({named: self._behind[named] if is_last else record.offset + 1})
        return record

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions whose positions may lie before what was fetched."""
        return set(self._behind)
