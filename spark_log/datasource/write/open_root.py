"""A root that a Python process of Spark keeps open between tasks and between micro-batches.

Spark reuses its Python processes: the tasks of all micro-batches run in a few processes, and the
driver's commits in one. A root that stays open saves reading logs from their beginning. It changes
no result: a new process reads what it needs.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

from spark_log.cluster import open_cluster
from spark_log.config import DEFAULT_API_TIMEOUT_MS, BrokerOptions, TopicConfig, to_keys
from spark_log.errors import LogTruncatedError, NotFoundError
from spark_log.log import PartitionLog
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.storage import retry_while_unavailable
from spark_log.threads import Deadline
from spark_log.transaction import TopicIdPartition, TransactionCoordinator

_log = logging.getLogger(__name__)

_MAX_ROOTS: Final = 4
_MAX_COORDINATORS: Final = 16
_MAX_LOGS: Final = 128
"""Maximum number of kept objects of each kind; the least recently used ones are dropped."""

_Key = tuple[str, tuple[tuple[str, str], ...]]
_Kept = TypeVar("_Kept")
_HashableKey = TypeVar("_HashableKey", bound=Hashable)

_idle: OrderedDict[_Key, OpenRoot] = OrderedDict()
"""Open roots that no caller uses at the moment."""


class OpenRoot:
    """An opened root for one caller, with the logs and coordinators that were opened before.

    A context manager: unless it ends with an error, the root is kept open for the next `acquire`.

    Attributes:
        cluster: the opened root.
        image: the metadata, read by `acquire`.
    """

    def __init__(
        self,
        root: str,
        storage_options: Mapping[str, str],
        broker_options: BrokerOptions | None = None,
    ) -> None:
        """Open a root; callers use `acquire`, which may return one that is open already.

        Args:
            root: URL of the cluster root.
            storage_options: options of the file system.
            broker_options: broker id → options of the file system of its root.
        """
        self.cluster = open_cluster(root, storage_options, broker_options=broker_options)
        self.image: MetadataImage = self.cluster.image()
        self._key = _key(root, storage_options, broker_options)
        self._logs: OrderedDict[TopicIdPartition, tuple[TopicConfig, PartitionLog]] = OrderedDict()
        self._coordinators: OrderedDict[str, TransactionCoordinator] = OrderedDict()

    @classmethod
    def acquire(
        cls,
        root: str,
        storage_options: Mapping[str, str],
        broker_options: BrokerOptions | None = None,
    ) -> OpenRoot:
        """Return a root that was kept open, or open it; no other caller uses it meanwhile.

        A root that was removed and created again is opened anew.

        Raises:
            RootNotFoundError: the root does not exist.
            KafkaTimeoutError: its storage did not answer for a minute.
            StorageError: the root cannot be read.
        """
        found = _idle.pop(_key(root, storage_options, broker_options), None)
        if found is None or not found._refresh():
            _log.debug("opening the root %s", root)
            return cls(root, storage_options, broker_options)
        return found

    def __enter__(self) -> OpenRoot:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            return
        _drop_oldest(self._logs, _MAX_LOGS)
        _drop_oldest(self._coordinators, _MAX_COORDINATORS)
        _idle[self._key] = self
        _drop_oldest(_idle, _MAX_ROOTS)

    def partition_log(self, topic: TopicImage, partition: int) -> PartitionLog:
        """Return the log of a partition, with the settings that the topic has now.

        Raises:
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        key, config = TopicIdPartition(topic.topic_id, partition), topic.config()
        found = self._logs.get(key)
        if found is None or found[0] != config:
            found = self._logs[key] = config, self.cluster.partition_log(topic, partition)
        self._logs.move_to_end(key)
        return found[1]

    def coordinator(self, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator of a transactional id; it uses the logs that are open here."""
        found = self._coordinators.get(transactional_id)
        if found is None:
            found = self._coordinators[transactional_id] = TransactionCoordinator(
                self.cluster, transactional_id, open_log=self._open_log
            )
        self._coordinators.move_to_end(transactional_id)
        return found

    def _open_log(self, partition: TopicIdPartition) -> PartitionLog | None:
        topic = self.image.find_by_id(partition.topic_id)
        return None if topic is None else self.partition_log(topic, partition.partition)

    def _refresh(self) -> bool:
        """Read the metadata; return whether the root and its metadata are still the same ones."""
        try:
            deadline = Deadline(
                "reading the metadata", "default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS
            )
            if not retry_while_unavailable(self.cluster.has_same_id, deadline):
                return False
            self.image = retry_while_unavailable(self.cluster.image, deadline)
        except (NotFoundError, LogTruncatedError):
            return False  # opening it anew raises the error that names the missing file
        return True


def _key(
    root: str, storage_options: Mapping[str, str], broker_options: BrokerOptions | None
) -> _Key:
    given = {**storage_options, **to_keys(broker_options or {})}
    return root, tuple(sorted(given.items()))


def _drop_oldest(kept: OrderedDict[_HashableKey, _Kept], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
