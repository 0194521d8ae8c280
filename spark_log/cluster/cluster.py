"""`Cluster`: an opened cluster root, with its store, its metadata, and its partitions' logs."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet, WeakValueDictionary

from spark_log.cluster.broker_stores import BrokerStores
from spark_log.cluster.meta_properties import MetaProperties, guarded_root, unreadable_root
from spark_log.cluster.root_creation import find_or_create_root, read_cluster_id
from spark_log.config import DEFAULT_API_TIMEOUT_MS, BrokerOptions
from spark_log.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LocalLog, MergeExecutor, PartitionDirectory, PartitionLog
from spark_log.metadata import (
    METADATA_MARKER,
    ROOT_BROKER_ID,
    MetadataCheckpoint,
    MetadataImage,
    MetadataLog,
    MetadataPartitionStates,
    ProducerIds,
    TopicImage,
    check_same_stripes,
    read_checkpoint,
)
from spark_log.storage import (
    StagedFileLostError,
    StorageOptions,
    Store,
    call_through_outages,
    find_quorum,
    open_store,
)
from spark_log.threads import call_beside
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, SuppressedErrors

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe

_log = logging.getLogger(__name__)

_STRIPES_MS: Final = 1_000
"""Maximum age of the metadata of a topic of which a stripe has ended."""

_open_clusters: WeakSet[Cluster] = WeakSet()
"""The clusters that this process has open, if their roots are on a file system that can be
unmounted. No new root is created in the place of such a root."""


def open_cluster(
    root: str | os.PathLike[str] | None,
    storage_options: StorageOptions | None = None,
    *,
    timeout_ms: float = DEFAULT_API_TIMEOUT_MS,
    setting: str = "default.api.timeout.ms",
    clock: Clock = SYSTEM_CLOCK,
    create: bool = False,
    request_timeout_ms: int | None = None,
    broker_options: BrokerOptions | None = None,
    client_rack: str = "",
) -> Cluster:
    """Open a root as `Cluster` does; wait if its storage does not answer.

    Args:
        root: a path or URL.
        storage_options: the options of the file system; never printed or logged.
        timeout_ms: the maximum time to wait.
        setting: the config key of the time limit, for messages.
        clock: gives records their timestamps, and measures ages.
        create: create the root if it does not exist.
        request_timeout_ms: time limit of one request to an object store.
        broker_options: storage options of the other brokers; never printed or logged.
        client_rack: the rack whose in-sync replicas are read first; empty for none.

    Raises:
        KafkaTimeoutError: the time is over.
        UnknownOutcomeError: the time is over, and the root may have been created.
        StorageError: the root does not exist, is not a root, or its storage refuses the request.
    """

    def opened() -> Cluster:
        return Cluster(
            root,
            storage_options,
            clock=clock,
            create=create,
            request_timeout_ms=request_timeout_ms,
            broker_options=broker_options,
            client_rack=client_rack,
        )

    store = open_store(root, storage_options)
    return call_through_outages(
        timeout_ms,
        opened,
        what=f"opening the root {store.url}",
        setting=setting,
        is_local=store.is_local,
        clock=clock,
        notes_silence=True,
    )


class Cluster:
    """An opened root: the only way from its URL to its logs.

    Attributes:
        store: the files of the root.
        clock: gives records their timestamps, and measures ages.
        cluster_id: the id in ``meta.properties``.
        suppressed: failures that did not stop a caller.
        polled_stripes: the stripes that were polled last for callers that keep no logs: what is
            known of them is kept until the next ones, so that a repeated lookup is cheap.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        storage_options: StorageOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        create: bool = False,
        request_timeout_ms: int | None = None,
        broker_options: BrokerOptions | None = None,
        client_rack: str = "",
    ) -> None:
        """Open a root.

        Args:
            root: a path or URL.
            storage_options: the options of the file system; never printed or logged.
            clock: gives records their timestamps, and measures ages.
            create: create the root if it does not exist.
            request_timeout_ms: time limit of one request to an object store; None for the default
                of ``request.timeout.ms``.
            broker_options: broker id → storage options of its root, which `broker_store` opens;
                never printed or logged. A broker without options uses those of the cluster's root,
                if its URL has the same scheme.
            client_rack: the rack whose in-sync replicas are read first; empty for none.

        Raises:
            RootNotFoundError: the root does not exist, and ``create`` is false.
            InvalidRootError: it is a file, was created by an incompatible version, or is the root
                of a broker other than 0.
            StorageUnavailableError: the storage does not answer; try again.
            UnsupportedStoreError: the storage does not support put-if-absent.
            InvalidConfigurationError: a storage option is unknown.
        """
        store, checkpoint = _open_root(root, storage_options, request_timeout_ms)
        self.clock = clock
        self._client_rack = client_rack
        self._stripes: WeakValueDictionary[tuple[str, int], Stripe] = WeakValueDictionary()
        self._stripes_lock = threading.Lock()
        self.polled_stripes: Sequence[Stripe] = ()
        self.suppressed = SuppressedErrors(IN_PROCESS)
        self._unguarded = self.store = store
        self.cluster_id = checkpoint.cluster_id if checkpoint else ""
        if not self.cluster_id:
            self.cluster_id = find_or_create_root(
                store,
                create=create,
                is_open_elsewhere=self._is_open_elsewhere,
                suppressed=self.suppressed,
            )
        self.store = guarded_root(store, MetaProperties(self.cluster_id))
        if self.store is not store:
            _open_clusters.add(self)
        self._metadata = MetadataLog(
            self.store,
            clock,
            self.suppressed,
            cluster_id=self.cluster_id,
            checkpoint=checkpoint,
        )
        self._producer_ids = ProducerIds(self._metadata)
        self._broker_stores = BrokerStores(
            self.store,
            self.cluster_id,
            self._metadata,
            broker_options,
            request_timeout_ms,
            storage_options,
            clock,
        )
        _log.debug("%s: opened the root of the cluster %s", self.root, self.cluster_id)

    def __repr__(self) -> str:
        return f"<Cluster root={self.root!r} cluster_id={self.cluster_id!r}>"

    @property
    def root(self) -> str:
        """The root's URL, without credentials."""
        return self.store.url

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log, through which metadata are changed."""
        return self._metadata

    @property
    def producer_ids(self) -> ProducerIds:
        """Allocates ids of idempotent producers."""
        return self._producer_ids

    def release(self) -> None:
        """Record that this process no longer has the root open: its client is closed.

        While a root is open and missing, this process creates no new root in its place.
        """
        _open_clusters.discard(self)

    def has_same_id(self) -> bool:
        """Return whether the root still has the id it was opened with; one request.

        Raises:
            NotFoundError: the root does not exist any more.
            StorageError: the root cannot be read.
        """
        return read_cluster_id(self._unguarded) == self.cluster_id

    def keep_reserve(self) -> None:
        """Reserve disk space for deletions on a full disk; a failure is only counted."""
        with self.suppressed.suppress("reserve", self.root, StorageError):
            self.store.keep_reserve()

    def image(self) -> MetadataImage:
        """Return the present metadata.

        Raises:
            StorageUnavailableError: the root cannot be found, for example because it is not
                mounted.
            InvalidRootError: the path or URL has another root now.
            LogTruncatedError: the root exists, but files of its metadata log were removed.
        """
        self.store.check_root()  # looking for a new record does not read a file
        return self._metadata.image()

    def topic(self, name: str) -> TopicImage:
        """Return a topic.

        Raises:
            UnknownTopicOrPartitionError: it does not exist; the message names similar topics.
        """
        return self.image().topic(name)

    def broker_store(self, broker_id: int) -> Store:
        """Return the store of a broker's root; broker 0 is the cluster's root.

        The first call for a registration of a broker opens and checks its root. Later calls send no
        request, and return the same store.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageUnavailableError: its root cannot be reached.
            InvalidRootError: its root belongs to another cluster, broker or registration: another
                storage is mounted at the path, or the root was emptied.
        """
        return self.store if broker_id == ROOT_BROKER_ID else self._broker_stores.get(broker_id)

    def check_broker(self, broker_id: int) -> None:
        """Check that a broker's root exists now, and belongs to the broker's registration.

        `broker_store` checks a root once. When a file system is unmounted later, its path looks
        like an empty root.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageUnavailableError: its root cannot be reached.
            InvalidRootError: its root is another one now.
        """
        self._broker_stores.check(broker_id)

    def unchecked_broker_store(self, broker_id: int, root: str) -> Store:
        """Return the store of a root before it is registered, with the broker's storage options.

        No request is sent.

        Raises:
            UnsupportedStoreError: the storage does not support put-if-absent.
            InvalidRootError: the URL names no bucket.
            InvalidConfigurationError: a storage option is unknown.
        """
        return self._broker_stores.unchecked(broker_id, root)

    def partition_log(
        self, topic: TopicImage, partition: int, *, merge_executor: MergeExecutor | None = None
    ) -> PartitionLog:
        """Return the log of a partition, with all of its replicas.

        Args:
            topic: the partition's topic.
            partition: the partition's number.
            merge_executor: runner of tail merges on another thread. If it is None, the append that
                makes a merge due waits for the merge.

        Raises:
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        if partition not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has no partition {partition}; it has "
                f"{topic.num_partitions}, numbered from 0",
                topic=topic.name,
            )
        config, suppressed = topic.config(), SuppressedErrors(self.suppressed)
        new_log: Callable[..., LocalLog] = LocalLog
        striped = None
        stripe = self.stripe_of(topic, partition)
        if stripe is not None:
            from spark_log.log.stripe import StripedAppender, StripedLog  # late: few topics have it

            new_log = partial(StripedLog, stripe)
            striped = StripedAppender(stripe, partition, merge_executor)

        def open_replica(broker_id: int, number: int, check_root: Callable[[], None]) -> LocalLog:
            return new_log(
                self.broker_store(broker_id),
                topic.numbered_directory(partition, number),
                topic_id=topic.topic_id,
                partition=partition,
                config=config,
                clock=self.clock,
                suppressed=suppressed,
                has_existence_marker=True,
                has_leader_epochs=True,
                merge_executor=merge_executor,
                check_root=check_root,
            )

        return PartitionLog(
            MetadataPartitionStates(self._metadata, topic, partition),
            open_replica,
            self.broker_store,
            name=topic.partition_directory(partition),
            config=config,
            clock=self.clock,
            suppressed=suppressed,
            is_near=self._is_near if self._client_rack else None,
            check_root=self.check_broker,
            striped=striped,
        )

    def stripe(self, topic: TopicImage, number: int) -> Stripe:
        """Return a stripe of a topic. The logs of its partitions share it.

        Args:
            topic: the topic.
            number: the stripe's number.
        """
        from spark_log.log.stripe import Stripe, StripeDirectory, stripe_path  # late: few topics

        config = topic.config()
        with self._stripes_lock:
            key = topic.topic_id, number
            found = self._stripes.get(key)
            if found is None or found.directory.config != config:
                directory = StripeDirectory(
                    self.store,
                    stripe_path(topic.directory, number),
                    topic_id=topic.topic_id,
                    stripe=number,
                    config=config,
                    clock=self.clock,
                    has_existence_marker=True,
                    check_root=partial(self.check_broker, ROOT_BROKER_ID),
                    check_stripes=partial(self._check_stripes, topic),
                    suppressed=SuppressedErrors(self.suppressed),
                )
                found = self._stripes[key] = Stripe(directory, partial(self._files_at_home, topic))
            return found

    def stripe_of(self, topic: TopicImage, partition: int) -> Stripe | None:
        """Return the stripe of a partition; None if it has a log of its own, or does not exist.

        Args:
            topic: the topic.
            partition: the partition's number.
        """
        number = topic.stripe_of(partition)
        if number is None or partition not in topic.partitions:
            return None
        return self.stripe(topic, number)

    def stripes(self, topic: TopicImage) -> list[Stripe]:
        """Return the stripes of a topic that have partitions; none of a topic without stripes.

        Args:
            topic: the topic.
        """
        return [self.stripe(topic, number) for number in topic.stripes[: topic.num_partitions]]

    def _check_stripes(self, topic: TopicImage) -> None:
        """Check whether a topic, of which a stripe has ended, has the same stripes as before.

        Raises:
            StripesChangedError: it has other stripes now.
        """
        image = self._metadata.recent_image(_STRIPES_MS) or self._metadata.image()
        present = image.find_by_id(topic.topic_id)
        if present is not None:
            check_same_stripes(topic, present)

    def _files_at_home(self, topic: TopicImage, partition: int) -> PartitionDirectory:
        return self.replica_log(topic, partition, ROOT_BROKER_ID, 0).files

    def _is_near(self, broker_id: int) -> bool:
        brokers = self._metadata.known_image().brokers()
        return any(
            each.broker_id == broker_id and each.rack == self._client_rack for each in brokers
        )

    def replica_log(
        self, topic: TopicImage, partition: int, broker_id: int, number: int | None = None
    ) -> LocalLog:
        """Return the log of one replica, for work that each replica does by itself, such as merges.

        Args:
            topic: the partition's topic.
            partition: the partition's number.
            broker_id: the id of the replica's broker.
            number: the number of the replica's directory; None for the number in ``topic``.

        Raises:
            ValueError: the broker has no replica of the partition.
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageUnavailableError: its root cannot be reached.
            InvalidRootError: its root is another one now.
        """
        if number is None:
            number = topic.partitions[partition].directory_of(broker_id)
        return LocalLog(
            self.broker_store(broker_id),
            topic.numbered_directory(partition, number),
            topic_id=topic.topic_id,
            partition=partition,
            config=topic.config(),
            clock=self.clock,
            suppressed=self.suppressed,
            has_existence_marker=True,
        )

    def is_deleted(self, topic: TopicImage) -> bool:
        """Return whether a topic was deleted, also if it was created again since.

        Raises:
            StorageError: the metadata cannot be read.
        """
        found = self.image().find(topic.name)
        return found is None or found.topic_id != topic.topic_id

    @contextmanager
    def detecting_deletion(self, topic: TopicImage) -> Iterator[None]:
        """Distinguish a topic's deletion from damage, in a block that reads the topic's logs.

        When a topic is deleted, its files disappear one by one, so that its logs look damaged or
        shorter. The topic is removed from the metadata before its first file. If the block
        raises such an error, this reads the metadata again.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
        """
        try:
            yield
        except (CorruptRecordError, OffsetOutOfRangeError, StorageError) as error:
            is_lost = isinstance(error, StagedFileLostError)
            if isinstance(error, StorageError) and error.retriable and not is_lost:
                raise
            if not self._is_known_to_be_deleted(topic):
                raise
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} was deleted while it was read", topic=topic.name
            ) from error

    def _is_known_to_be_deleted(self, topic: TopicImage) -> bool:
        try:
            return self.is_deleted(topic)
        except SparkLogError:
            return False

    def _is_open_elsewhere(self) -> bool:
        """Return whether another client of this process has the root open."""
        if not any(each.root == self.root for each in tuple(_open_clusters)):
            return False
        gc.collect()  # a client that nobody refers to any more was not released
        return any(each.root == self.root for each in tuple(_open_clusters))


def _open_root(
    root: str | os.PathLike[str] | None,
    storage_options: StorageOptions | None,
    request_timeout_ms: int | None,
) -> tuple[Store, MetadataCheckpoint | None]:
    """Return the store of a root, or the quorum that it is a member of, and its checkpoint.

    On an object store the checkpoint is read at the same time as the list of a quorum's members.
    The checkpoint has the cluster's id, too, so that ``meta.properties`` need not be read. On a
    local file system the checkpoint is None: only ``meta.properties`` distinguishes a root from an
    empty mount point.
    """
    store = open_store(root, storage_options, request_timeout_ms=request_timeout_ms)
    if store.is_local:
        return store, None
    checkpoint = call_beside(lambda: _checkpoint_of(store))
    try:
        found = find_quorum(store, storage_options, request_timeout_ms=request_timeout_ms)
    except StorageError as error:
        raise unreadable_root(store, error) from error
    if found is not store:  # the checkpoint of one member may be an older one
        return found, None if found.is_local else _checkpoint_of(found)
    return store, checkpoint()


def _checkpoint_of(store: Store) -> MetadataCheckpoint | None:
    """Return the checkpoint of a root; None if it has none, or it cannot be read."""
    try:
        found = read_checkpoint(store, METADATA_MARKER.path)
    except SparkLogError:  # the metadata log reads it again
        return None
    return None if isinstance(found, int) else found
