"""The markers of a decided transaction: one control segment in each registered partition.

A marker has the participant's next epoch, which no record of the transaction has. A log reads
everything up to its end before it puts a marker, and leaves out a marker whose epoch the producer
has reached in this log. Any number of processes may therefore put missing markers, at any time.

The rules: (protocol T7).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from spark_log.cluster import Cluster
from spark_log.errors import SparkLogError, StripesChangedError, UnknownTopicOrPartitionError
from spark_log.log import LogAppendInfo
from spark_log.metadata import MetadataImage
from spark_log.record import EndTransactionMarker
from spark_log.transaction.state import TopicIdPartition, TransactionMetadata

if TYPE_CHECKING:
    from spark_log.log.stripe import StripeDirectory

_log = logging.getLogger(__name__)

MARKERS_AT_ONCE: Final = 16
"""Maximum number of partitions to which a transaction's records, or markers, are written at once.
"""


class MarkerStripe(Protocol):
    """A stripe whose partitions get markers (`Stripe`)."""

    @property
    def directory(self) -> StripeDirectory:
        """The stripe's directory."""

    def append_markers(
        self, markers: Mapping[int, Sequence[EndTransactionMarker]], /
    ) -> Sequence[LogAppendInfo | SparkLogError | None]:
        """Append the markers that their partitions do not have; see `Stripe.append_markers`."""


class MarkerLog(Protocol):
    """The log of a partition that gets markers (`PartitionLog`)."""

    @property
    def stripe(self) -> MarkerStripe | None:
        """The stripe that orders the partition's appends; None without one."""

    @property
    def is_quick(self) -> bool:
        """Whether an append waits for nothing but the processor."""

    @property
    def directory(self) -> str:
        """The partition's directory, relative to a root, for messages."""

    def append_markers(self, markers: Sequence[EndTransactionMarker], /) -> LogAppendInfo | None:
        """Append the markers that the log does not have; see `PartitionLog.append_markers`."""


_MAX_TRIES: Final = 12
_PAUSE_MS: Final = 100
"""Tries to put markers while the number of stripes of a topic changes, and the first pause between
two of them: together some seconds."""

OpenLog = Callable[[TopicIdPartition], MarkerLog | None]
"""A function that returns a partition's open log, to which nobody else appends meanwhile; None
without one."""


_Place = TypeVar("_Place", "TopicIdPartition", str)
"""Place where one put puts markers: a partition log, or the directory of a stripe."""


def put_markers(
    cluster: Cluster,
    state: TransactionMetadata,
    partitions: Collection[TopicIdPartition] | None = None,
    *,
    open_log: OpenLog | None = None,
    at_once: int = MARKERS_AT_ONCE,
    kept: dict[str, MarkerStripe] | None = None,
) -> None:
    """Put the missing markers of a decided transaction. May be repeated after any error.

    A partition that no longer exists needs none, even if its topic was created again. The markers
    of all partitions of a stripe are one put.

    Args:
        cluster: the opened root.
        state: the state with the decision.
        partitions: the partitions that get their markers; None for all registered ones.
        open_log: the function that returns logs that are open already, whose end is known: a marker
            then costs one put.
        at_once: the number of partitions that are written at the same time, each by a thread; with
            1 the caller's thread writes one after the other. It also does so with partitions of
            open logs that are quick (`PartitionLog.is_quick`).
        kept: gets the stripes of the partitions, by directory, in the place of what it has; also if
            there is an error. While the caller keeps it, the cluster's next use of these stripes,
            as by another try, does not read again what is not at home.

    Raises:
        SparkLogError: a marker could not be put. The other partitions were tried too. If the number
            of stripes of a topic changes meanwhile, they are tried again some times before.
    """
    for attempt in range(1, _MAX_TRIES):
        try:
            _put_markers(cluster, state, partitions, open_log=open_log, at_once=at_once, kept=kept)
        except StripesChangedError:
            open_log = None  # the logs that are open may be where the partitions were before
            cluster.clock.sleep_ms(_PAUSE_MS * attempt)
        else:
            return
    _put_markers(cluster, state, partitions, open_log=open_log, at_once=at_once, kept=kept)


def _put_markers(
    cluster: Cluster,
    state: TransactionMetadata,
    partitions: Collection[TopicIdPartition] | None,
    *,
    open_log: OpenLog | None,
    at_once: int,
    kept: dict[str, MarkerStripe] | None,
) -> None:
    """Put the missing markers of a decided transaction, each where its partition is now."""
    missing = {
        partition: markers
        for partition, markers in transaction_markers(state).items()
        if partitions is None or partition in partitions
    }
    known: dict[TopicIdPartition, MarkerLog | None] = {
        partition: open_log(partition) if open_log else None for partition in missing
    }
    unknown = {partition.topic_id for partition, log in known.items() if log is None}
    image = _image(cluster, unknown) if unknown else None

    def put(partition: TopicIdPartition) -> SparkLogError | None:
        log = known[partition]
        topic = image.find_by_id(partition.topic_id) if image is not None else None
        try:
            if log is None and topic is not None:
                log = cluster.partition_log(topic, partition.partition)
            if log is not None:
                appended = log.append_markers(missing[partition])
                _log.debug(
                    "%s: %s of transaction %d of %r: %s",
                    log.directory,
                    _described(missing[partition]),
                    state.transaction,
                    state.transactional_id,
                    f"put at offset {appended.base_offset}" if appended else "in the log already",
                )
        except SparkLogError as error:
            return None if _is_gone(cluster, partition, error) else error
        return None

    def put_into_stripe(path: str) -> SparkLogError | None:
        partitions = striped[path]
        results = stripes[path].append_markers(
            {partition.partition: missing[partition] for partition in partitions}
        )
        _log.debug("%s: put %d markers of %r", path, len(results), state.transactional_id)
        errors = [each for each in results if isinstance(each, SparkLogError)]
        return None if not errors or _is_gone(cluster, partitions[0], errors[0]) else errors[0]

    # By directory: the partitions of a stripe, and the one that is open, if one is.
    striped: dict[str, list[TopicIdPartition]] = {}
    stripes: dict[str, MarkerStripe] = {}
    quick: list[TopicIdPartition] = []
    slow: list[TopicIdPartition] = []
    for partition in sorted(missing):
        log = known[partition]
        topic = image.find_by_id(partition.topic_id) if image is not None else None
        stripe: MarkerStripe | None = None
        if log is not None:
            stripe = log.stripe
        elif topic is not None:
            stripe = cluster.stripe_of(topic, partition.partition)
        if stripe is not None:
            path = stripe.directory.path
            striped.setdefault(path, []).append(partition)
            if log is not None or path not in stripes:
                stripes[path] = stripe
        else:
            (quick if log is not None and log.is_quick else slow).append(partition)
    if kept is not None:
        kept.clear()
        kept |= stripes
    results = [
        *map(put, quick),
        *_run(cluster, put, slow, at_once),
        *_run(cluster, put_into_stripe, [*striped], at_once),
    ]
    errors = [error for error in results if error is not None]
    if errors:
        raise errors[0]


def _image(cluster: Cluster, topic_ids: Collection[str]) -> MetadataImage:
    """Return metadata that have the topics without an open log.

    They are read later than the state: so they have every topic that the registrations name, unless
    the topic was deleted. The known ones are sufficient if they have the topics, and these have
    stripes: an append to a stripe needs no state of a partition, and learns if the stripe ended.
    """
    known = cluster.metadata.known_image()
    topics = [known.find_by_id(topic_id) for topic_id in topic_ids]
    if all(topic is not None and topic.config().stripes for topic in topics):
        return known
    return cluster.image()


def transaction_markers(
    state: TransactionMetadata,
) -> Mapping[TopicIdPartition, list[EndTransactionMarker]]:
    """Return the markers of a decided transaction: partition → its participants' markers."""
    markers: dict[TopicIdPartition, list[EndTransactionMarker]] = {}
    decision = state.decision
    assert decision is not None
    for producer_id, participant in sorted(state.participants.items()):
        marker = EndTransactionMarker(
            producer_id=producer_id,
            producer_epoch=participant.producer.producer_epoch + 1,
            is_committed=state.is_committed and producer_id in decision.counting,
        )
        for partition in participant.partitions:
            markers.setdefault(partition, []).append(marker)
    return markers


def _described(markers: Sequence[EndTransactionMarker]) -> str:
    marker = markers[0]
    what = "commit" if marker.is_committed else "abort"
    more = f" and {len(markers) - 1} more" if len(markers) > 1 else ""
    return f"{what} marker of producer {marker.producer_id}:{marker.producer_epoch}{more}"


def _is_gone(cluster: Cluster, partition: TopicIdPartition, error: SparkLogError) -> bool:
    """Whether an append failed because the topic was deleted, now or since it was looked up."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return True
    if error.retriable:
        return False
    return cluster.image().find_by_id(partition.topic_id) is None


def _run(
    cluster: Cluster,
    put: Callable[[_Place], SparkLogError | None],
    places: Sequence[_Place],
    at_once: int,
) -> list[SparkLogError | None]:
    threads = min(at_once, len(places))
    if threads > 1:
        # RuntimeError: no thread can be started, for example after the main thread has ended. The
        # pool's exit waits for its threads, so no partition gets two writers here.
        executor_class = cluster.store.executor_class
        with suppress(RuntimeError), executor_class(threads, "spark-log-markers") as pool:
            return list(pool.map(put, places))
    return [put(place) for place in places]
