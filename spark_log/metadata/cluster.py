"""A cluster root, opened: its store, its metadata, and the logs of its partitions.

On storage: ``meta.properties`` with the cluster's id and the format version, made once by
put-if-absent. A crash between it and anything else leaves an empty, valid cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    InvalidRootError,
    LogTruncatedError,
    NotFoundError,
    OffsetOutOfRangeError,
    RootNotFoundError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import PartitionLog
from spark_log.log.witness import Witness
from spark_log.metadata import metadata_log
from spark_log.metadata.image import MetadataImage, TopicImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.producer_ids import ProducerIds
from spark_log.storage import StorageOptions, Store, open_store
from spark_log.storage.deadline import call_within
from spark_log.storage.os_errors import TRANSIENT_ERRNOS
from spark_log.suppressed import IN_PROCESS, SuppressedErrors
from spark_log.types import random_id

META_PROPERTIES = "meta.properties"
FORMAT_VERSION = "1"


def open_cluster(
    root: str | os.PathLike[str] | None,
    storage_options: StorageOptions | None = None,
    *,
    timeout_ms: float,
    setting: str,
    clock: Clock = SYSTEM_CLOCK,
    create: bool = False,
    request_timeout_ms: int | None = None,
) -> Cluster:
    """Open a root as `Cluster` does, in limited time where it lies on an object store.

    Args:
        root: a path or URL.
        storage_options: for the file system; never shown.
        timeout_ms: how long it may take. Of a local path the operating system decides that.
        setting: the key that this comes from.
        clock: see `Cluster`.
        create: see `Cluster`.
        request_timeout_ms: see `open_store`.

    Raises:
        KafkaTimeoutError: it took longer.
        UnknownOutcomeError: it took longer, and the root may have been made.
        StorageError: see `Cluster`.
    """

    def opened() -> Cluster:
        return Cluster(
            root,
            storage_options,
            clock=clock,
            create=create,
            request_timeout_ms=request_timeout_ms,
        )

    store = open_store(root, storage_options)
    if store.is_mapped:
        return opened()
    return call_within(timeout_ms, opened, what=f"opening the root {store.url}", setting=setting)


class Cluster:
    """The one way from a root's URL to its logs.

    Attributes:
        store: the root's files.
        clock: tells the time of records and ages.
        cluster_id: as ``meta.properties`` has it.
        suppressed: failures that whoever has this root open went on without.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        storage_options: StorageOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        create: bool = False,
        request_timeout_ms: int | None = None,
    ) -> None:
        """Open a root.

        Args:
            root: a path or URL.
            storage_options: for the file system; never shown.
            clock: tells the time of records and ages.
            create: make the root if it does not exist.
            request_timeout_ms: see `open_store`.

        Raises:
            RootNotFoundError: there is none, and ``create`` is false.
            InvalidRootError: it is a file, or was made by an incompatible version.
            StorageUnavailableError: the storage does not answer; try again.
            UnsupportedStoreError: the storage cannot promise put-if-absent.
        """
        self.store: Store = open_store(root, storage_options, request_timeout_ms=request_timeout_ms)
        self.clock = clock
        self.suppressed = SuppressedErrors(IN_PROCESS)
        self.cluster_id = self._read_or_create(create)
        self._metadata = MetadataLog(self.store, clock, self.suppressed)
        self._producer_ids = ProducerIds(self._metadata)

    @property
    def root(self) -> str:
        """The root's URL, without credentials."""
        return self.store.url

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log, for changes."""
        return self._metadata

    @property
    def producer_ids(self) -> ProducerIds:
        """Ids for idempotent producers."""
        return self._producer_ids

    def keep_reserve(self) -> None:
        """Keep some space for the day on which the disk is full; without it all else goes on."""
        with self.suppressed.suppress("reserve", self.root, StorageError):
            self.store.keep_reserve()

    def image(self) -> MetadataImage:
        """Return the metadata as it is now.

        Raises:
            StorageUnavailableError: the root is not there: not mounted, say.
            LogTruncatedError: it is, but files of the metadata log were removed.
        """
        try:
            return self._metadata.image()
        except LogTruncatedError:
            if not self.store.is_gone(META_PROPERTIES):
                raise
            raise StorageUnavailableError(
                f"the root {self.root} is not there just now (no {META_PROPERTIES}): "
                f"mount it again, or move it back",
                path=self.root,
            ) from None

    def topic(self, name: str) -> TopicImage:
        """Return a topic.

        Raises:
            UnknownTopicOrPartitionError: there is none; names those that look like it.
        """
        return self.image().topic(name)

    def partition_log(self, topic: TopicImage, partition: int) -> PartitionLog:
        """Return the log of a partition.

        Raises:
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        if partition not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has no partition {partition}; it has "
                f"{topic.num_partitions}, numbered from 0",
                topic=topic.name,
            )
        return PartitionLog(
            self.store,
            topic.partition_directory(partition),
            topic_id=topic.topic_id,
            partition=partition,
            config=topic.config(),
            clock=self.clock,
            suppressed=self.suppressed,
            has_witness=True,
        )

    def is_deleted(self, topic: TopicImage) -> bool:
        """Return whether a topic is gone, or was created again.

        Raises:
            StorageError: the metadata cannot be read.
        """
        found = self.image().find(topic.name)
        return found is None or found.topic_id != topic.topic_id

    @contextmanager
    def telling_deletion(self, topic: TopicImage) -> Iterator[None]:
        """Tell the end of a topic from damage to it, in what reads its logs inside the block.

        The files of a topic vanish one by one when it is deleted: what is left looks like a log
        with a hole, or a shorter one. So the metadata are read again before that is told; a topic
        is taken out of them before its first file is removed.

        Raises:
            UnknownTopicOrPartitionError: it was deleted.
        """
        try:
            yield
        except (CorruptRecordError, OffsetOutOfRangeError, StorageError) as error:
            if isinstance(error, StorageError) and error.retriable:
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

    def _read_or_create(self, create: bool) -> str:
        try:
            return self._read()
        except NotFoundError:
            if self._has_metadata():
                return self._read_beside_metadata()
            if not create:
                raise RootNotFoundError(
                    f"there is no spark-log root at {self.root}; check the path, or create a "
                    f"topic there: spark-log topics create NAME --root {self.root}",
                    path=self.root,
                ) from None
        self.store.create_root()
        text = f"# spark-log cluster root\nversion={FORMAT_VERSION}\ncluster.id={random_id()}\n"
        try:
            self.store.put_if_absent(META_PROPERTIES, text.encode())
        except AlreadyExistsError:  # another process was first: its id counts
            self.store.sync(META_PROPERTIES)
        self.keep_reserve()
        return self._read()

    def _has_metadata(self) -> bool:
        directory = metadata_log.DIRECTORY
        return next(iter(self.store.list(directory)), None) is not None or Witness(
            directory
        ).exists(self.store)

    def _read_beside_metadata(self) -> str:
        """Read again: another process may just have made the root.

        Raises:
            InvalidRootError: the root was made, and what says so is gone.
        """
        try:
            return self._read()
        except NotFoundError:
            raise InvalidRootError(
                f"{self.root} has metadata, but no {META_PROPERTIES}: the file was removed. "
                f"Restore it from a copy; it has two lines, version={FORMAT_VERSION} and "
                f"cluster.id=, with 22 letters and digits of your choice if the id is not known",
                path=self.root,
            ) from None

    def _read(self) -> str:
        try:
            text: str = (
                self.store.open_buffer(META_PROPERTIES).to_pybytes().decode("utf-8", "replace")
            )
        except NotFoundError:
            raise
        except StorageError as error:
            if _may_pass(error):
                raise StorageUnavailableError(
                    f"the root {self.root} cannot be reached: {error}", path=self.root
                ) from error
            # On an object store no file can be where a directory should be.
            hint = "; a root is a directory" if self.store.is_mapped else ""
            raise InvalidRootError(
                f"{self.root} cannot be read as a root: {error}{hint}", path=self.root
            ) from error
        lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
        properties = {key.strip(): value.strip() for key, _, value in lines}
        if properties.get("version") != FORMAT_VERSION or not properties.get("cluster.id"):
            raise InvalidRootError(
                f"{self.root}/{META_PROPERTIES} is of version {properties.get('version')!r}; "
                f"this spark-log reads version {FORMAT_VERSION!r}",
                path=self.root,
            )
        return properties["cluster.id"]


def _may_pass(error: StorageError) -> bool:
    """Whether the root may be there when it is looked for again."""
    cause = error.__cause__
    return error.retriable or (isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRNOS)
