"""`Admin`: create, list, describe and delete topics. No JVM, no server."""

from __future__ import annotations

import os
from collections.abc import Sequence

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import TopicConfig, to_text
from spark_log.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    RootNotFoundError,
    TopicAlreadyExistsError,
)
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from spark_log.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from spark_log.metadata.topic_names import validate_topic_name
from spark_log.storage import StorageOptions
from spark_log.types import NewTopic, PartitionDescription, TopicDescription, random_id

MAX_PARTITIONS = 200_000
"""Most partitions of one topic: what a typing error must not turn into metadata."""


class Admin:
    """Administers the topics of one cluster root. Names follow Kafka's admin client."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        storage_options: StorageOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Touches nothing yet.

        Args:
            root: a path or URL; `create_topics` creates it if there is none.
            storage_options: for the file system; never shown.
            clock: tells the time of metadata records.
        """
        self._root = root
        self._storage_options = storage_options
        self._clock = clock
        self._opened: Cluster | None = None

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, str]:
        """Create topics, all of them or none, in one append to the metadata log.

        Args:
            new_topics: what to create.
            validate_only: check everything and create nothing.

        Returns:
            The id of each created topic by its name.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError,
            InvalidReplicationFactorError, InvalidConfigurationError: nothing was created.
        """
        for topic in new_topics:
            _validate(topic)
        topic_ids = {topic.name: random_id() for topic in new_topics}

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            names = [topic.name for topic in image.topics()]
            records: list[MetadataRecord] = []
            for topic in new_topics:
                if topic.name in names:
                    raise TopicAlreadyExistsError(
                        f"topic {topic.name!r} exists; describe it, or take another name",
                        topic=topic.name,
                    )
                validate_topic_name(topic.name, names)
                names.append(topic.name)
                records += _creation(topic, topic_ids[topic.name])
            return records

        if validate_only:
            decide(self._image_if_any())
        else:
            self._cluster(create=True).metadata.commit(decide)
        return topic_ids

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return [topic.name for topic in self._cluster().image().topics()]

    def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicDescription]:
        """Describe topics: partitions with their offsets and sizes, and config overrides.

        Args:
            names: which; None for all.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist.
        """
        image = self._cluster().image()
        topics = list(image.topics()) if names is None else [image.topic(name) for name in names]
        return [self._describe(topic) for topic in topics]

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and their data, all of them or none.

        A topic is gone when its record is in the metadata log; its files are removed after that.
        A crash in between leaves files that belong to no topic and harm nothing.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist; nothing was deleted.
        """
        cluster = self._cluster()
        doomed: dict[str, TopicImage] = {}

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            doomed.clear()
            doomed.update((name, image.topic(name)) for name in names)
            return [RemoveTopicRecord(topic_id=topic.topic_id) for topic in doomed.values()]

        cluster.metadata.commit(decide)
        for topic in doomed.values():
            cluster.store.delete_directory(topic.directory)

    def _cluster(self, create: bool = False) -> Cluster:
        if self._opened is None:
            self._opened = Cluster(
                self._root, self._storage_options, clock=self._clock, create=create
            )
        return self._opened

    def _image_if_any(self) -> MetadataImage:
        """Return the metadata, which is empty where there is no root yet."""
        try:
            return self._cluster().image()
        except RootNotFoundError:
            return MetadataImage()

    def _describe(self, topic: TopicImage) -> TopicDescription:
        partitions = []
        for number, record in sorted(topic.partitions.items()):
            view = self._cluster().partition_log(topic, number).observe()
            partitions.append(
                PartitionDescription(
                    partition=number,
                    leader=record.leader,
                    replicas=record.replicas,
                    isr=record.isr,
                    log_start_offset=view.log_start_offset,
                    log_end_offset=view.log_end_offset,
                    size_bytes=sum(segment.file.size_bytes for segment in view.live.segments),
                    segments=len(view.live.segments),
                )
            )
        return TopicDescription(
            topic.name, topic.topic_id, tuple(partitions), dict(topic.overrides)
        )


def _validate(topic: NewTopic) -> None:
    validate_topic_name(topic.name)
    if not 1 <= topic.num_partitions <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {topic.num_partitions} partitions; give 1 to {MAX_PARTITIONS}"
        )
    if topic.replication_factor != 1:
        raise InvalidReplicationFactorError(
            f"topic {topic.name!r}: replication factor {topic.replication_factor}, but 1 broker "
            f"(storage root) is registered; give 1"
        )
    TopicConfig.parse(topic.topic_configs)


def _creation(topic: NewTopic, topic_id: str) -> list[MetadataRecord]:
    checked = TopicConfig.parse(topic.topic_configs)
    values = checked.dotted()
    named = [TopicConfig.model_fields[field].alias or field for field in checked.model_fields_set]
    return [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *(
            PartitionRecord(topic_id=topic_id, partition_id=number)
            for number in range(topic.num_partitions)
        ),
        *(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic.name,
                name=key,
                value=to_text(values[key]),
            )
            for key in sorted(named)
        ),
    ]
