"""A cluster root, opened: its store, its metadata, and the logs of its partitions.

On storage: ``meta.properties`` with the cluster's id and the format version, made once by
put-if-absent. A crash between it and anything else leaves an empty, valid cluster.
"""

from __future__ import annotations

import os
from contextlib import suppress

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    NotFoundError,
    RootNotFoundError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import PartitionLog
from spark_log.metadata.image import MetadataImage, TopicImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.producer_ids import ProducerIds
from spark_log.storage import StorageOptions, Store, open_store
from spark_log.types import random_id

META_PROPERTIES = "meta.properties"
FORMAT_VERSION = "1"


class Cluster:
    """The one way from a root's URL to its logs."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        storage_options: StorageOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        create: bool = False,
    ) -> None:
        """Open a root.

        Args:
            root: a path or URL.
            storage_options: for the file system; never shown.
            clock: tells the time of records and ages.
            create: make the root if it does not exist.

        Raises:
            RootNotFoundError: there is none, and ``create`` is false.
            InvalidRootError: it is a file, or was made by an incompatible version.
            UnsupportedStoreError: the storage cannot promise put-if-absent.
        """
        self.store: Store = open_store(root, storage_options)
        self.clock = clock
        self.cluster_id = self._read_or_create(create)
        self._metadata = MetadataLog(self.store, clock)
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

    def image(self) -> MetadataImage:
        """Return the metadata as it is now."""
        return self._metadata.image()

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
        )

    def _read_or_create(self, create: bool) -> str:
        try:
            return self._read()
        except NotFoundError:
            if not create:
                raise RootNotFoundError(
                    f"there is no spark-log root at {self.root}; check the path, or create a "
                    f"topic there: spark-log topics create NAME --root {self.root}",
                    path=self.root,
                ) from None
        self.store.create_root()
        text = f"# spark-log cluster root\nversion={FORMAT_VERSION}\ncluster.id={random_id()}\n"
        with suppress(AlreadyExistsError):  # another process was first: its id counts
            self.store.put_if_absent(META_PROPERTIES, text.encode())
        return self._read()

    def _read(self) -> str:
        try:
            text: str = (
                self.store.open_buffer(META_PROPERTIES).to_pybytes().decode("utf-8", "replace")
            )
        except NotFoundError:
            raise
        except StorageError as error:
            raise InvalidRootError(
                f"{self.root} cannot be read as a root: {error}; a root is a directory",
                path=self.root,
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
