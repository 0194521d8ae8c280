"""Opens the stores of a cluster's brokers: their storage roots, each with options of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from spark_log.cluster.meta_properties import MetaProperties, check_is_root, guarded_root
from spark_log.config import BrokerOptions, checked_broker_options
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    StorageError,
    StorageUnavailableError,
)
from spark_log.metadata import ROOT_BROKER_ID, MetadataLog, RegisterBrokerRecord
from spark_log.storage import StorageOptions, Store, open_store
from spark_log.util import Clock

_LONG_MS: Final = 1_000
"""Minimum duration of a failed attempt after which a root is not tried again for a while."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _FailedOpen:
    """An attempt to open a root.

    Attributes:
        error: the error of the attempt.
        until_ms: the monotonic time before which the root is not tried again.
    """

    error: StorageError
    until_ms: float


class BrokerStores:
    """The stores of the registered brokers, each opened on first use. Safe in several threads.

    A root that could not be opened after a long wait is not tried again for as long as it took. So
    a process that opens many partitions waits for a dead root once, and not once for each of them.
    """

    def __init__(
        self,
        root: Store,
        cluster_id: str,
        metadata: MetadataLog,
        options: BrokerOptions | None,
        request_timeout_ms: int | None,
        root_options: StorageOptions | None,
        clock: Clock,
    ) -> None:
        """Return the stores of a cluster; nothing is opened yet.

        Args:
            root: the store of the cluster's root, which is that of broker 0.
            cluster_id: the id of the cluster.
            metadata: the metadata log, which has the registrations.
            options: the storage options of each broker, by id; never printed or logged.
            request_timeout_ms: time limit of one request to an object store.
            root_options: storage options of the cluster's root. A broker without options of its
                own has them too, if its URL has the same scheme.
            clock: the clock whose monotonic time measures the duration of an attempt.

        Raises:
            InvalidConfigurationError: ``options`` are not a mapping from ids to mappings.
        """
        self._root = root
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._options = checked_broker_options(options)
        # Options of a quorum have those of each member under its root.
        self._root_options = {
            key: value for key, value in (root_options or {}).items() if "/" not in key
        }
        self._request_timeout_ms = request_timeout_ms
        self._opened: dict[int, Store] = {}
        """Stores by broker epoch, so that the root of a re-registered broker is opened again."""
        self._failed: dict[int, _FailedOpen] = {}
        self._clock = clock

    def unchecked(self, broker_id: int, root: str) -> Store:
        """Return the store at a root, with a broker's options; no request is sent.

        Raises:
            UnsupportedStoreError: the storage does not support put-if-absent.
            InvalidRootError: the URL names no bucket.
            InvalidConfigurationError: a storage option is unknown.
        """
        options = storage_options_of(
            broker_id, root, self._options, self._root.url, self._root_options
        )
        return open_store(root, options, request_timeout_ms=self._request_timeout_ms)

    def get(self, broker_id: int) -> Store:
        """Return the store of a broker.

        The first call for a registration reads ``meta.properties``; later calls send no request. A
        registration by another process takes effect when this process next reads the metadata,
        which this method does if the id is unknown.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageUnavailableError: the root cannot be reached, or is empty.
            InvalidRootError: the root is that of another cluster, broker or registration.
        """
        if broker_id == ROOT_BROKER_ID:
            return self._root
        broker = self._registration(broker_id)
        opened = self._opened.get(broker.broker_epoch)
        if opened is None:
            store = self.unchecked(broker_id, broker.root)
            self._check_first(store, broker)
            store = guarded_root(store, self._expected(broker))
            opened = self._opened.setdefault(broker.broker_epoch, store)
            _log.debug(
                "broker %d: opened its root %s, broker epoch %d",
                broker_id,
                store.url,
                broker.broker_epoch,
            )
        return opened

    def check(self, broker_id: int) -> None:
        """Read ``meta.properties`` of a broker's root again.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            StorageUnavailableError: the root cannot be reached, or is empty.
            InvalidRootError: the root is that of another cluster, broker or registration.
        """
        broker = self._registration(broker_id)
        store = self._root
        if broker_id != ROOT_BROKER_ID:
            store = self._opened.get(broker.broker_epoch) or self.unchecked(broker_id, broker.root)
        check_is_root(store, self._expected(broker))
        self._failed.pop(broker.broker_epoch, None)

    def _check_first(self, store: Store, broker: RegisterBrokerRecord) -> None:
        """Check a root that is to be opened, unless an attempt has just failed."""
        epoch, began_ms = broker.broker_epoch, self._clock.monotonic_ms()
        failed = self._failed.get(epoch)
        if failed is not None and began_ms < failed.until_ms:
            raise StorageUnavailableError(
                f"the root of broker {broker.broker_id} could not be opened: {failed.error}",
                path=store.url,
            ) from failed.error
        try:
            check_is_root(store, self._expected(broker))
        except StorageError as error:
            failed_ms = self._clock.monotonic_ms()
            if failed_ms - began_ms >= _LONG_MS:
                self._failed[epoch] = _FailedOpen(error, failed_ms + (failed_ms - began_ms))
            raise
        self._failed.pop(epoch, None)

    def _registration(self, broker_id: int) -> RegisterBrokerRecord:
        try:
            return self._metadata.known_image().broker(broker_id)
        except BrokerIdNotRegisteredError:
            return self._metadata.image().broker(broker_id)

    def _expected(self, broker: RegisterBrokerRecord) -> MetaProperties:
        """Return the expected ``meta.properties`` of a registered broker's root."""
        is_root = broker.broker_id == ROOT_BROKER_ID
        return MetaProperties(
            self._cluster_id, None if is_root else broker.broker_id, broker.incarnation_id
        )


def storage_options_of(
    broker_id: int,
    root: str,
    broker_options: BrokerOptions,
    cluster_root: str,
    cluster_options: StorageOptions | None,
) -> StorageOptions | None:
    """Return the storage options of a broker's root.

    Args:
        broker_id: the broker's id.
        root: the URL of the broker's root.
        broker_options: the storage options of each broker, by id.
        cluster_root: the URL of the cluster's root.
        cluster_options: storage options of the cluster's root. A broker without options of its own
            has them too, if its URL has the same scheme.
    """
    is_alike = _scheme(root) == _scheme(cluster_root)
    return broker_options.get(broker_id, cluster_options if is_alike else None)


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else ""
