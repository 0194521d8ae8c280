"""The base of all subjects of `Admin`: the opened root, time limits, commits and log lookups."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from spark_log.cluster import Cluster, open_cluster
from spark_log.config import AdminConfig, BrokerOptions
from spark_log.errors import RootNotFoundError
from spark_log.log import PartitionLog
from spark_log.metadata import Decide, MetadataImage, TopicImage
from spark_log.storage import (
    StorageOptions,
    call_through_outages,
    map_requests,
    open_store,
    retry_append,
    with_reserve,
)
from spark_log.types import TopicPartition
from spark_log.util import Clock, ForeignMethods

_Result = TypeVar("_Result")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="ClusterAccess")


def limited(
    method: Callable[Concatenate[_Self, _P], _Result],
) -> Callable[Concatenate[_Self, _P], _Result]:
    """Make a method return or raise within its ``timeout_ms``, or ``default.api.timeout.ms``."""

    @wraps(method)
    def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        what, timeout_ms = method.__name__.lstrip("_"), kwargs.get("timeout_ms")
        return self._within(what, lambda: method(self, *args, **kwargs), timeout_ms)

    return call


def share_cluster(admin: ClusterAccess, cluster: Cluster) -> None:
    """Let an `Admin` use a root that is open already, until its `close`.

    Args:
        admin: an `Admin` of the same root, with the same storage options.
        cluster: the opened root.
    """
    admin._share(cluster)


class ClusterAccess(ForeignMethods):
    """Opens a root on first use, and keeps it open until `close`.

    Attributes:
        config: the settings of the `Admin`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        storage_options: StorageOptions | None,
        broker_options: BrokerOptions,
        clock: Clock,
        config: AdminConfig,
    ) -> None:
        """Store the arguments; nothing is opened yet."""
        self.config = config
        self._root = root
        self._storage_options = storage_options
        self._broker_options = broker_options
        self._clock = clock
        self._opened: Cluster | None = None
        self._is_shared = False
        self._is_local: bool | None = None

    def close(self) -> None:
        """Drop the metadata that was read. There is no connection to close."""
        if self._opened is not None and not self._is_shared:
            self._opened.release()
        self._opened = None

    def _share(self, cluster: Cluster) -> None:
        """Use a root that is open already, instead of opening it again."""
        self._opened = cluster
        self._is_shared = True

    def _cluster(self, create: bool = False) -> Cluster:
        if self._opened is None:
            self._is_shared = False
            self._opened = open_cluster(
                self._root,
                self._storage_options,
                timeout_ms=self.config.default_api_timeout_ms,
                clock=self._clock,
                create=create,
                request_timeout_ms=self.config.request_timeout_ms,
                broker_options=self._broker_options,
            )
        return self._opened

    def _within(self, what: str, call: Callable[[], _Result], timeout_ms: Any = None) -> _Result:
        if self._is_local is None:
            # A broker with storage options is not local.
            store = open_store(self._root, self._storage_options)
            self._is_local = store.is_mapped and not self._broker_options
        if self._is_local:
            return call()
        limit_ms, setting = self._limit(timeout_ms)
        return call_through_outages(
            limit_ms,
            call,
            what=what,
            setting=setting,
            is_local=False,
            notes_silence=self._opened is None,
        )

    def _limit(self, timeout_ms: float | None) -> tuple[float, str]:
        """Return the time limit of a call, and the name of the setting that it comes from."""
        if timeout_ms is None:
            return self.config.default_api_timeout_ms, "default.api.timeout.ms"
        return timeout_ms, "timeout_ms"

    def _image_or_empty(self) -> MetadataImage:
        """Return the metadata; an empty image if the root does not exist yet."""
        try:
            return self._cluster().image()
        except RootNotFoundError:
            return MetadataImage()

    def _commit(self, decide: Decide, validate_only: bool) -> None:
        """Change the metadata of an existing root; with ``validate_only``, only check."""
        cluster = self._cluster()
        image = cluster.image()  # fails before anything is sent if the storage does not answer
        if validate_only:
            decide(image)
        else:
            with_reserve(
                cluster.store, lambda: retry_append(lambda: cluster.metadata.commit(decide))
            )

    def _log(self, image: MetadataImage, tp: TopicPartition) -> PartitionLog:
        return self._cluster().partition_log(image.topic(tp.topic), tp.partition)

    def _map_partitions(
        self,
        read: Callable[[TopicPartition], _Result],
        partitions: Sequence[TopicPartition],
        topic: Callable[[str], TopicImage],
    ) -> list[_Result]:
        """Call ``read`` for each partition; in parallel if a read is a request.

        Raises:
            UnknownTopicOrPartitionError: a topic was deleted meanwhile.
        """
        cluster = self._cluster()

        def guarded(tp: TopicPartition) -> _Result:
            with cluster.detecting_deletion(topic(tp.topic)):
                return read(tp)

        return map_requests(cluster.store, guarded, partitions)
