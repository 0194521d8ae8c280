"""`Admin`: administers one cluster root. No JVM, no server."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Self, Unpack

from spark_log.admin.brokers import BrokerOperations
from spark_log.admin.configs import ConfigOperations
from spark_log.admin.groups import GroupOperations
from spark_log.admin.log_dirs import LogDirOperations
from spark_log.admin.offsets import OffsetOperations
from spark_log.admin.producers import ProducerOperations
from spark_log.admin.quotas import QuotaOperations
from spark_log.admin.records import RecordOperations
from spark_log.admin.replication import ReplicationOperations
from spark_log.admin.topics import TopicOperations
from spark_log.admin.transactions import TransactionOperations
from spark_log.config import AdminConfig, BrokerOptions, checked_broker_options
from spark_log.storage import StorageOptions, checked_root
from spark_log.util import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from spark_log.config import AdminSettings

_CREDENTIALS = re.compile(r"(?<=//)[^/@]*:[^/@]*@")


class Admin(
    BrokerOperations,
    ReplicationOperations,
    TopicOperations,
    QuotaOperations,
    ConfigOperations,
    RecordOperations,
    LogDirOperations,
    GroupOperations,
    OffsetOperations,
    ProducerOperations,
    TransactionOperations,
):
    """Administers brokers, topics, configs, quotas, offsets, groups and transactions of one root.

    Method names follow Kafka's admin client and kafka-python's. A call that changes metadata
    appends one batch to the metadata log: all of its changes are made, or none. A call that changes
    the committed offsets of one group is atomic, too. The functions in `spark_log.admin.tables`
    convert results to Arrow tables.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        storage_options: StorageOptions | None = None,
        broker_storage_options: BrokerOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **config: Unpack[AdminSettings],
    ) -> None:
        """Return an admin client for a root; the root is opened by the first call.

        Every call to an object store ends within ``default.api.timeout.ms``: with
        `KafkaTimeoutError` if nothing was changed, with `UnknownOutcomeError` if something may have
        been changed. Both are retriable.

        Args:
            root: a path or URL; required. `create_topics` creates the root if it does not exist.
            storage_options: the options of the file system; never printed or logged.
            broker_storage_options: broker id → storage options of its root. A broker without them
                has ``storage_options``, if its URL has the same scheme as the root. Never shown.
            clock: the clock that gives metadata records their timestamps.
            config: keys of `AdminConfig` in snake_case, or dotted from a ``dict[str, Any]``.

        Raises:
            InvalidConfigurationError: a key is unknown, a value is not allowed, or the root is
                missing.
        """
        settings = AdminConfig.parse(config)
        super().__init__(
            checked_root(root),
            storage_options,
            checked_broker_options(broker_storage_options),
            clock,
            settings,
        )

    def __repr__(self) -> str:
        """Return the class and the root, without credentials."""
        return f"Admin(root={_CREDENTIALS.sub('', str(self._root))!r})"

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close this client."""
        self.close()
