"""Reads the partitions and offsets of a query's topics; needs no Spark session."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from spark_log.cluster import open_cluster
from spark_log.config import DEFAULT_API_TIMEOUT_MS
from spark_log.datasource.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    OffsetLimit,
    ReadOptions,
)
from spark_log.datasource.read.split_replica import SplitReplica
from spark_log.errors import (
    InvalidOptionError,
    NotFoundError,
    StripesChangedError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import (
    LOG_CACHES,
    LogCache,
    LogView,
    PartitionLog,
    RowStatistics,
    TailView,
    TransactionIndex,
)
from spark_log.log.files import LiveSegment
from spark_log.metadata import ROOT_BROKER_ID, MetadataImage, TopicImage
from spark_log.storage import retry_while_unavailable
from spark_log.threads import Deadline
from spark_log.types import TopicPartition

if TYPE_CHECKING:
    from spark_log.consumer import Resolve
    from spark_log.log.stripe import Stripe

_END: Final = sys.maxsize
"""First offset of a view of which only the end is needed."""

_THREADS: Final = 32
"""Number of partitions that are read at the same time if each request goes over the network."""

_Answer = TypeVar("_Answer")
_Arguments = ParamSpec("_Arguments")


def _following_changes(
    read: Callable[Concatenate[OffsetReader, _Arguments], _Answer],
) -> Callable[Concatenate[OffsetReader, _Arguments], _Answer]:
    """Read again with newer metadata if the number of stripes of a topic changes meanwhile."""

    @wraps(read)
    def repeated(
        reader: OffsetReader, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Answer:
        while True:
            try:
                return read(reader, *args, **kwargs)
            except StripesChangedError:  # each time by a newer change
                reader.partitions()

    return repeated


class _Listing(LogCache):
    """The listing of one partition. It is repeated if the budget has no room to keep it.

    Attributes:
        view: the newest listing; None without one.
        start_offset: offset from which on the view has the log; None if it has all of it.
        tail: follows the log's end from a listing; None without one.
    """

    def __init__(self) -> None:
        self.view: LogView | None = None
        self.start_offset: int | None = None
        self.tail: TailView | None = None
        self._share = LOG_CACHES.share(self)

    def drop(self) -> None:
        """Forget the listing and the tail."""
        self.view = self.tail = None

    def found(self, start_offset: int | None, end_offset: int) -> LogView | None:
        """Return the view if it has the log between two offsets; else None.

        Args:
            start_offset: the first offset; None for all of the log.
            end_offset: the offset up to which the view has to reach.
        """
        view, known = self.view, self.start_offset
        has_start = known is None or (start_offset is not None and known <= start_offset)
        return view if view and has_start and end_offset <= view.log_end_offset else None

    def keep(
        self, view: LogView, start_offset: int | None = None, tail: TailView | None = None
    ) -> None:
        """Keep a listing, and the tail that follows it; None keeps the present one."""
        self.view, self.start_offset, self.tail = view, start_offset, tail or self.tail
        self._share.hold(view.memory_bytes + (0 if tail is None else tail.size_bytes))


class OffsetReader:
    """Reads partitions and offsets for the planning of batches and micro-batches.

    `partitions`, `earliest` and `latest` read the storage on each call; nothing is cached that
    could change an answer. After the first call, `latest` costs one request for the next segment's
    name per partition; of striped partitions, one for each stripe, on each call. Callers that poll
    set their own interval (`LogPoller`). Not thread-safe.

    With ``isolation.level=read_committed`` the end of a partition is its last stable offset.
    """

    def __init__(self, options: ReadOptions) -> None:
        """Open the cluster.

        Args:
            options: parsed options of a read.

        Raises:
            RootNotFoundError: no root exists at ``path``.
        """
        self.options = options
        self._cluster = open_cluster(
            options.root, options.storage_options, broker_options=options.broker_options
        )
        self._image: MetadataImage | None = None
        self._logs: dict[TopicPartition, tuple[tuple[str, range], PartitionLog]] = {}
        self._listings: dict[TopicPartition, _Listing] = {}
        self._transactions: dict[TopicPartition, TransactionIndex] = {}
        self._resolve_blocking: Resolve | None = None

    @property
    def is_local(self) -> bool:
        """Whether the root is on a local file system, so that requests need no network."""
        return self._cluster.store.is_local

    # --- partitions ------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions to read, in order, from the current metadata.

        Returns:
            An empty list if the option ``subscribePattern`` matches no topic.

        Raises:
            UnknownTopicOrPartitionError: a topic of ``subscribe`` or a partition of ``assign`` does
                not exist.
        """
        image = self._read_image()
        if image is not self._image:  # a new image is made only for a change
            self._image = image
            self._forget_deleted(image)
        options = self.options
        if options.assigned is not None:
            for topic, number in sorted(options.assigned):
                _check_partition(image.topic(topic), number)
            return sorted(options.assigned)
        return [
            TopicPartition(topic.name, number)
            for topic in sorted(self._topics(image), key=lambda topic: topic.name)
            for number in sorted(topic.partitions)
        ]

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that the last call of `partitions` found, by name."""
        image = self._current_image()
        found = {name: image.find(name) for name in self.options.topics}
        if self.options.pattern is not None:
            found = {topic.name: topic for topic in self._topics(image)}
        return {name: topic.topic_id for name, topic in found.items() if topic is not None}

    def stripes(self) -> dict[str, int]:
        """Return the number of stripes of each topic that has any, by the metadata read last."""
        return {
            topic.name: count
            for topic in self._current_image().topics()
            if "stripes" in topic.overrides and (count := topic.config().stripes)
        }

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log.

        It is the same object until the topic is created again, or gets another number of stripes.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        topic = self._current_image().topic(tp.topic)
        opened = topic.topic_id, topic.stripes
        known, log = self._logs.get(tp, (None, None))
        if log is None or known != opened:
            log = self._cluster.partition_log(topic, tp.partition)
            self._logs[tp] = opened, log
            self._listings[tp] = _Listing()
            self._transactions.pop(tp, None)
        return log

    def replicas(self, tp: TopicPartition) -> tuple[SplitReplica, ...]:
        """Return the replicas that have all offsets up to the end that was observed.

        Those in the rack of ``client.rack`` come first, then the last in-sync replica, which the
        end is from, and then the ones before it.

        Returns:
            The replicas; empty if the only one is in the cluster's root.
        """
        log, image = self.log(tp), self._current_image()
        topic, state = image.topic(tp.topic), log.read_state
        if not state.is_replicated and state.isr == (ROOT_BROKER_ID,):
            return ()
        if not {*state.isr} <= {broker.broker_id for broker in image.brokers()}:
            image = self._read_image()  # a broker was registered since
        known = {broker.broker_id: broker for broker in image.brokers()}
        rack = self.options.client_rack
        brokers = [broker_id for broker_id in reversed(state.isr) if broker_id in known]
        brokers.sort(key=lambda broker_id: not rack or known[broker_id].rack != rack)
        return tuple(
            SplitReplica(
                broker_id,
                known[broker_id].root or self.options.root,
                topic.numbered_directory(tp.partition, state.directory_number(broker_id)),
            )
            for broker_id in brokers
        )

    # --- offsets ---------------------------------------------------------------------------------

    @_following_changes
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current log start offsets; costs one listing per partition.

        Partitions that do not exist are left out.
        """
        existing = self._existing(partitions)
        self._poll_stripes(existing)
        views = self._map(self._observe, existing)
        return {tp: view.log_start_offset for tp, view in views.items()}

    @_following_changes
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current ends of partitions; costs one request for a name per partition.

        All striped partitions of one stripe share one request.

        With ``read_committed`` new records cost a listing and a read of their headers as well. A
        transaction that holds a partition up for a while is ended if its producer is gone.

        Partitions that do not exist are left out.
        """
        existing = self._existing(partitions)
        self._poll_stripes(existing)
        ends = self._map(self._latest, existing)
        if self.options.reads_committed:
            for tp in ends:
                if self._end_blocking_transaction(tp):
                    ends[tp] = self._latest(tp)
        return ends

    @_following_changes
    def starting_offsets(self, *, is_batch: bool) -> dict[TopicPartition, int]:
        """Return the offset at which the read of each partition starts; never -1 or -2.

        The first of these options counts: ``startingTimestamp``, ``startingOffsetsByTimestamp``,
        ``startingOffsets``. The default is earliest for a batch and latest for a stream.

        Raises:
            InvalidOptionError: offsets or times do not name exactly the partitions to read, or a
                partition has no record at or after a time and
                ``startingOffsetsByTimestampStrategy`` is ``error``.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        limit = self.options.starting
        if limit is None:
            limit = AtOffsets("startingOffsets", EARLIEST if is_batch else LATEST)
        return self._resolve(limit, latest_if_no_match=self.options.latest_if_no_match)

    @_following_changes
    def ending_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset at which the read of each partition ends; for batches.

        The views that `starting_offsets` has read are used again, so both answers are of the same
        log.

        Raises:
            InvalidOptionError: offsets or times do not name exactly the partitions to read.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        return self._resolve(self.options.ending, latest_if_no_match=True)

    def view(
        self, tp: TopicPartition, end_offset: int = 0, start_offset: int | None = None
    ) -> LogView:
        """Return a view of a partition between two offsets; the last view if it has them.

        Args:
            tp: the partition.
            end_offset: offset up to which the caller reads; 0 accepts any view.
            start_offset: offset from which on the caller reads; None for all of the log. A view of
                a striped partition may begin there, if it costs no request then.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        log = self.log(tp)  # drops the view of a topic that was deleted and created again
        view = self._listings[tp].found(start_offset, end_offset)
        if view is not None and log.stripe is not None and log.files.is_outdated(view.observed_ms):
            view = None  # `latest` does not list, and so does not show that the log's start moved
        return self._observe(tp, end_offset, start_offset) if view is None else view

    def views(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, LogView]:
        """Return a `view` of each partition, between a first offset and the one after the last."""
        return self._map(lambda tp: self.view(tp, ranges[tp][1], ranges[tp][0]), ranges)

    def row_statistics(
        self, segments: Mapping[TopicPartition, LiveSegment]
    ) -> dict[TopicPartition, RowStatistics]:
        """Return the statistics of a Parquet segment of each partition; costs one request for each.

        They are those of no rows if the segment does not exist any more.

        Raises:
            CorruptRecordError: the footer of a segment is damaged.
        """

        def read(tp: TopicPartition) -> RowStatistics:
            segment = segments[tp]
            try:
                opened = self.log(tp).files.open(segment.name, segment.file.size_bytes)
            except NotFoundError:  # replaced since the listing; the task that reads it lists again
                return RowStatistics()
            return opened.row_statistics()

        return self._map(read, segments)

    def end_offsets(self, views: Mapping[TopicPartition, LogView]) -> dict[TopicPartition, int]:
        """Return the end of each view: its log end offset, or its last stable offset."""
        return self._map(lambda tp: self._end_of(tp, views[tp]), views)

    def transactions(
        self, tp: TopicPartition, start_offset: int, end_offset: int
    ) -> TransactionIndex:
        """Return the transactions that a read between two offsets has to know, if it is committed.

        Args:
            tp: the partition.
            start_offset: the first offset to read.
            end_offset: the offset after the last one to read. Some transactions before it may be
                open: then `TransactionIndex.last_stable_offset` is lower.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        log = self.log(tp)  # drops the transactions of a topic that was deleted and created again
        known = self._transactions.get(tp)
        if known is None or known.last_stable_offset < end_offset:
            first: int | None = None
            if log.stripe is not None:  # those before are known, or a home marker has them
                first = known.offset if known else log.stripe.reader.home_end(tp.partition)
            view = self._observe(
                tp, end_offset, None if first is None or start_offset < first else first
            )
            self._transactions[tp] = log.transactions(view)
        return self._transactions[tp]

    # --- internals -------------------------------------------------------------------------------

    def _read_image(self) -> MetadataImage:
        return self._waiting("reading the metadata", self._cluster.image)

    def _waiting(self, what: str, read: Callable[[], _Answer]) -> _Answer:
        """Return the result of a read; repeat the read while the storage does not answer."""
        deadline = Deadline(what, "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS)
        return retry_while_unavailable(read, deadline)

    def _topics(self, image: MetadataImage) -> Iterable[TopicImage]:
        if self.options.pattern is None:
            return map(image.topic, self.options.topics)
        pattern = re.compile(self.options.pattern)
        return (topic for topic in image.topics() if pattern.search(topic.name))

    def _forget_deleted(self, image: MetadataImage) -> None:
        """Forget the logs of deleted topics: a pattern may match ever new ones."""
        gone = [tp for tp in self._logs if image.find(tp.topic) is None]
        for tp in gone:
            del self._logs[tp]
            self._listings.pop(tp, None)
            self._transactions.pop(tp, None)

    def _current_image(self) -> MetadataImage:
        if self._image is None:
            self._image = self._read_image()
        return self._image

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        image = self._current_image()
        found = ((tp, image.find(tp.topic)) for tp in partitions)
        return [tp for tp, topic in found if topic and tp.partition in topic.partitions]

    def _observe(
        self, tp: TopicPartition, end_offset: int = 0, start_offset: int | None = None
    ) -> LogView:
        """Return a new view of a partition, and keep it; the arguments are those of `view`."""
        log = self.log(tp)

        def observe() -> LogView:
            first = start_offset
            if log.stripe is not None:
                reader = log.stripe.reader
                reader.reach(tp.partition, end_offset)
                if first is not None:
                    first = min(first, reader.end_offset(tp.partition))
            return log.observe_polled(first)

        view = self._waiting(f"listing {tp}", observe)
        self._listings[tp].keep(view, None if log.stripe is None else start_offset)
        return view

    def _poll_stripes(self, partitions: Iterable[TopicPartition]) -> None:
        """Learn the ends of all striped partitions, by one request for each stripe."""
        stripes = {stripe: tp for tp in partitions if (stripe := self.log(tp).stripe) is not None}
        of_partition = {tp: stripe for stripe, tp in stripes.items()}
        self._map(lambda tp: of_partition[tp].reader.poll(), of_partition)

    def _latest(self, tp: TopicPartition) -> int:
        """Return the end by the next segment's name, or at times by a listing.

        The end of a striped partition is known from the last poll of its stripe.
        """
        log = self.log(tp)
        if log.stripe is not None:
            return self._polled_end(tp, log.stripe)
        tail = self._listings[tp].tail
        if tail is not None:
            found = None
            while tail.is_valid:
                found = tail.open_at(tail.log_end_offset)
                if found is None or self.options.reads_committed:
                    break
            if tail.is_valid and found is None:
                return self._stable(tp, tail.log_end_offset)
        view = self._observe(tp)
        tail = TailView(log.files, view, start_offset=view.log_end_offset)
        self._listings[tp].keep(view, tail=tail)
        return self._end_of(tp, view)

    def _polled_end(self, tp: TopicPartition, stripe: Stripe) -> int:
        end_offset, first_open = stripe.reader.known_end(tp.partition)
        if self.options.reads_committed and first_open is not None:
            return first_open.first_offset
        return end_offset

    def _end_of(self, tp: TopicPartition, view: LogView) -> int:
        stripe = self.log(tp).stripe
        if stripe is not None:
            return min(self._polled_end(tp, stripe), view.log_end_offset)
        if self.options.reads_committed:
            self._transactions[tp] = self.log(tp).transactions(view)
        return self._stable(tp, view.log_end_offset)

    def _stable(self, tp: TopicPartition, log_end_offset: int) -> int:
        known = self._transactions.get(tp)
        return log_end_offset if known is None else min(known.last_stable_offset, log_end_offset)

    def _end_blocking_transaction(self, tp: TopicPartition) -> bool:
        """End the transaction that holds a partition up, if it can be; return whether it was."""
        stripe = self.log(tp).stripe
        if stripe is not None:
            _, blocking = stripe.reader.known_end(tp.partition)
        else:
            blocking = self._transactions[tp].first_open
        if blocking is None:
            return False
        if self._resolve_blocking is None:
            from spark_log.consumer import resolver  # tasks need none of it

            self._resolve_blocking = resolver(self._cluster)
        has_ended = self._resolve_blocking(blocking, self.log(tp))
        if has_ended and stripe is not None:
            stripe.reader.poll()
        return has_ended

    def _resolve(
        self, limit: OffsetLimit, *, latest_if_no_match: bool
    ) -> dict[TopicPartition, int]:
        partitions = self.partitions()
        asked = limit.offsets if isinstance(limit, AtOffsets) else limit.timestamp_ms
        by_partition = dict.fromkeys(partitions, asked) if isinstance(asked, int) else asked
        _check_names_all(by_partition, partitions, limit.option)
        if isinstance(limit, AtTime):
            return self._map(
                lambda tp: self._offset_for_time(
                    tp, by_partition[tp], limit.option, latest_if_no_match=latest_if_no_match
                ),
                partitions,
            )
        # An end that the stripe shows is no view of the whole log.
        needed = {tp: by_partition[tp] for tp in partitions if by_partition[tp] < 0}
        views = self._map(
            lambda tp: self.view(tp, 0, None if needed[tp] == EARLIEST else _END), needed
        )
        ends = self.end_offsets({tp: views[tp] for tp in views if by_partition[tp] == LATEST})
        starts = {tp: views[tp].log_start_offset for tp in views if by_partition[tp] == EARLIEST}
        return {tp: by_partition[tp] for tp in partitions} | starts | ends

    def _offset_for_time(
        self, tp: TopicPartition, timestamp_ms: int, option: str, *, latest_if_no_match: bool
    ) -> int:
        view = self.view(tp)
        found = self.log(tp).offset_for_time(
            timestamp_ms * 1000, view, isolation_level=self.options.isolation_level
        )
        if found is not None:
            return min(found[0], view.log_end_offset)
        if latest_if_no_match:
            return self._end_of(tp, view)
        raise InvalidOptionError(
            f"option {option!r}: {tp} has no record at or after {timestamp_ms} (milliseconds "
            f"since the epoch); give an earlier time, or set "
            f"startingOffsetsByTimestampStrategy=latest to start at the end of such partitions",
            key=option,
        )

    def _map(
        self, function: Callable[[TopicPartition], _Answer], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, _Answer]:
        """Call a function for each partition, in several threads if calls go over the network.

        On a local root one thread calls it: the cost is Python's own time.
        """
        partitions = list(partitions)
        for tp in partitions:
            self.log(tp)  # only this thread changes the dictionary of logs

        def read(tp: TopicPartition) -> _Answer:
            return self._waiting(f"reading the offsets of {tp}", lambda: function(tp))

        if self.is_local or len(partitions) < 2:
            return {tp: read(tp) for tp in partitions}
        with ThreadPoolExecutor(min(_THREADS, len(partitions)), "spark-log-offsets") as threads:
            return dict(zip(partitions, threads.map(read, partitions), strict=True))


def _check_partition(topic: TopicImage, number: int) -> None:
    if number not in topic.partitions:
        raise UnknownTopicOrPartitionError(
            f"option 'assign' names partition {number}, but topic {topic.name!r} has "
            f"{topic.num_partitions} partitions, numbered from 0",
            topic=topic.name,
        )


def _check_names_all(
    asked: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    what = "time" if "Timestamp" in option else "offset"
    if missing := sorted(set(partitions) - asked.keys()):
        hint = " (-2 earliest, -1 latest)" if what == "offset" else ""
        raise InvalidOptionError(
            f"option {option!r} has no {what} for {', '.join(map(str, missing))}; name every "
            f"partition{hint}",
            key=option,
        )
    if unknown := sorted(asked.keys() - set(partitions)):
        raise InvalidOptionError(
            f"option {option!r} names {', '.join(map(str, unknown))}, which this query does not "
            f"read",
            key=option,
        )
