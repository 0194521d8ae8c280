"""`AdminRuntime`: the root that an `Admin` has open, and the time limits of its calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from spark_log.cluster import Cluster, open_cluster
from spark_log.config import AdminConfig, BrokerOptions
from spark_log.errors import RootNotFoundError
from spark_log.metadata import MetadataImage
from spark_log.storage import StorageOptions, call_through_outages, open_store
from spark_log.threads import Deadline
from spark_log.util import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from spark_log.admin.groups import GroupManager


class _HasRuntime(Protocol):
    _runtime: AdminRuntime


_Result = TypeVar("_Result")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound=_HasRuntime)


def limited(
    method: Callable[Concatenate[_Self, _P], _Result],
) -> Callable[Concatenate[_Self, _P], _Result]:
    """Make a method return or raise within its ``timeout_ms``, or ``default.api.timeout.ms``."""

    @wraps(method)
    def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        what, timeout_ms = method.__name__, kwargs.get("timeout_ms")
        return self._runtime.call(what, lambda: method(self, *args, **kwargs), timeout_ms)

    return call


class AdminRuntime:
    """Opens a root on first use, keeps it open until `close`, and limits the time of calls.

    Attributes:
        clock: the clock that gives metadata records their timestamps.
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
        self.clock = clock
        self._config = config
        self._root = root
        self._storage_options = storage_options
        self._broker_options = broker_options
        self._cluster: Cluster | None = None
        self._groups: GroupManager | None = None
        self._is_shared = False
        self._is_local: bool | None = None

    def close(self) -> None:
        """Drop the root; the next use opens it again."""
        if self._cluster is not None and not self._is_shared:
            self._cluster.release()
        self._cluster = self._groups = None

    def share(self, cluster: Cluster) -> None:
        """Use a root that is open already, instead of opening it again."""
        self._cluster = cluster
        self._is_shared = True

    def cluster(self, create: bool = False) -> Cluster:
        """Return the opened root.

        Args:
            create: whether to create the root if it does not exist.
        """
        if self._cluster is None:
            self._is_shared = False
            self._cluster = open_cluster(
                self._root,
                self._storage_options,
                timeout_ms=self._config.default_api_timeout_ms,
                clock=self.clock,
                create=create,
                request_timeout_ms=self._config.request_timeout_ms,
                broker_options=self._broker_options,
            )
        return self._cluster

    def image_or_empty(self) -> MetadataImage:
        """Return the metadata; an empty image if the root does not exist yet."""
        try:
            return self.cluster().image()
        except RootNotFoundError:
            return MetadataImage()

    def groups(self) -> GroupManager:
        """Return the groups of the root."""
        if self._groups is None:
            from spark_log.admin.groups import GroupManager  # it imports pyarrow.parquet

            self._groups = GroupManager(self.cluster())
        return self._groups

    def call(self, what: str, call: Callable[[], _Result], timeout_ms: Any = None) -> _Result:
        """Return the result of ``call``; wait at most ``timeout_ms`` while the storage is away.

        Args:
            what: the name of the call, for messages.
            call: the function to call.
            timeout_ms: the time limit; None for ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: the time is over; nothing was changed.
            UnknownOutcomeError: the time is over, and something may have been changed.
        """
        if self._is_local_root():
            return call()
        limit_ms, setting = self._limit(timeout_ms)
        return call_through_outages(
            limit_ms,
            call,
            what=what,
            setting=setting,
            is_local=False,
            notes_silence=self._cluster is None,
        )

    def deadline(self, what: str, began_ms: float, timeout_ms: float | None) -> Deadline | None:
        """Return the time limit of the rest of a call; None on a local file system.

        Args:
            what: the name of the rest, for messages.
            began_ms: the monotonic time of the system's clock when the call began.
            timeout_ms: the time limit of the call; None for ``default.api.timeout.ms``.
        """
        if self._is_local_root():
            return None
        limit_ms, setting = self._limit(timeout_ms)
        left_ms = began_ms + limit_ms - SYSTEM_CLOCK.monotonic_ms()
        return Deadline(what, setting, max(0.0, left_ms))

    def _is_local_root(self) -> bool:
        """Return whether no call is a request: the root is local, and brokers have no options."""
        if self._is_local is None:
            store = open_store(self._root, self._storage_options)
            self._is_local = store.is_local and not self._broker_options
        return self._is_local

    def _limit(self, timeout_ms: float | None) -> tuple[float, str]:
        """Return the time limit of a call, and the name of the setting that it comes from."""
        if timeout_ms is None:
            return self._config.default_api_timeout_ms, "default.api.timeout.ms"
        return timeout_ms, "timeout_ms"
