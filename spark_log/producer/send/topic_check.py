"""Whether the topic of an append still exists, so that readers find the records."""

from __future__ import annotations

from spark_log.cluster import Cluster
from spark_log.config import TopicConfig
from spark_log.errors import (
    InvalidRecordError,
    SparkLogError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.metadata import METADATA_LEASE_MS, MetadataImage, TopicImage
from spark_log.producer.send.append_errors import DeleteDelayLoweredError, TopicDeletedError
from spark_log.producer.send.metadata_lookup import MetadataLookup


class TopicCheck:
    """Checks before and after an append that its topic exists."""

    def __init__(self, cluster: Cluster, metadata: MetadataLookup) -> None:
        """Read nothing yet.

        Args:
            cluster: the opened root.
            metadata: the lookups of metadata, which appends share.
        """
        self._cluster = cluster
        self._metadata = metadata

    def before(self, topic: TopicImage) -> None:
        """Check that a topic exists, by metadata that may be some seconds old.

        Raises:
            TopicDeletedError: it was deleted.
            SparkLogError: the metadata cannot be read.
        """
        if is_deleted(topic, self._metadata.recent_image()):
            raise TopicDeletedError

    def after(
        self, topic: TopicImage, config: TopicConfig, *, where: object, end_observed_ms: float
    ) -> MetadataImage:
        """Check after an append that readers will find it, and return the metadata.

        The topic must still exist in the metadata: records in a directory without a topic are
        never read, and must not be acknowledged. On an object store, metadata that were the newest
        within the last `METADATA_LEASE_MS` are sufficient (docs/adr/0026), if the log's end was
        known within the same time: a cleaner frees no name so soon, even if
        ``file.delete.delay.ms`` was lowered.

        Args:
            topic: the topic.
            config: the settings that the append was made with.
            where: what was appended to, for messages.
            end_observed_ms: monotonic time at which the end was known to be the newest before the
                append, or an earlier time.

        Raises:
            TopicDeletedError: the topic was deleted.
            DeleteDelayLoweredError: the append may not count.
            UnknownOutcomeError: the metadata cannot be read.
        """
        try:
            image = self._image(end_observed_ms)  # where roots can be exchanged, it checks ours
        except (SparkLogError, OSError) as error:
            raise UnknownOutcomeError(
                f"{where}: appended, but it is not known whether the topic still exists: {error}"
            ) from error
        if is_deleted(topic, image):
            self.remove_recreated_directory(topic)
            raise TopicDeletedError
        if image.topic(topic.name).overrides != topic.overrides:
            delay_ms = image.topic(topic.name).config().file_delete_delay_ms
            if delay_ms < config.file_delete_delay_ms:
                raise DeleteDelayLoweredError(
                    f"{where}: file.delete.delay.ms was lowered to {delay_ms} during the append; "
                    f"the retry finds out whether it is in the log"
                )
        return image

    def is_cause(self, topic: TopicImage, error: Exception) -> bool:
        """Return whether an append failed because its topic was deleted.

        To the append, the deleted files look like damage.
        """
        if isinstance(error, InvalidRecordError | StorageUnavailableError):
            return False  # these are not about missing files
        try:
            return is_deleted(topic, self._cluster.image())
        except (SparkLogError, OSError):
            return False

    def remove_recreated_directory(self, topic: TopicImage) -> None:
        """Remove the directory of a deleted topic that a late append created again."""
        suppressed = self._cluster.suppressed
        with suppressed.suppress("removal of a late append", topic.directory, Exception):
            self._cluster.store.delete_directory(topic.directory)

    def _image(self, end_observed_ms: float) -> MetadataImage:
        age_ms = self._cluster.clock.monotonic_ms() - end_observed_ms
        if age_ms < METADATA_LEASE_MS:
            return self._metadata.recent_image()
        return self._metadata.image()


def is_deleted(topic: TopicImage, image: MetadataImage) -> bool:
    """Return whether a topic does not exist in the metadata any more."""
    found = image.find(topic.name)
    return found is None or found.topic_id != topic.topic_id
