"""`Admin`: administers one cluster root. No JVM, no server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from spark_log.admin import (
    brokers,
    configs,
    features,
    log_dirs,
    offsets,
    producers,
    quotas,
    records,
    replication,
    scram_credentials,
    topics,
    transactions,
)
from spark_log.admin._runtime import AdminRuntime, limited
from spark_log.admin.configs import ConfigFilter
from spark_log.admin.validation import check_by_partition, check_isolation_level
from spark_log.cluster import Cluster
from spark_log.config import AdminConfig, BrokerOptions, checked_broker_options
from spark_log.errors import SparkLogError
from spark_log.log import IsolationLevel
from spark_log.metadata import list_reassignments
from spark_log.record import ProducerIdAndEpoch
from spark_log.storage import StorageOptions, checked_root
from spark_log.types import (
    AbortTransactionSpec,
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    DeletedRecords,
    ElectionType,
    FeatureDescription,
    GroupDescription,
    GroupListing,
    GroupPartitionLag,
    HangingTransaction,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    OffsetTimestamp,
    PartitionProducerState,
    PartitionReassignment,
    ScramCredentialInfo,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from spark_log.util import SYSTEM_CLOCK, Clock, ForeignMethods

if TYPE_CHECKING:
    from spark_log.config import AdminSettings

_CREDENTIALS = re.compile(r"(?<=//)[^/@]*:[^/@]*@")


class Admin(ForeignMethods):
    """Administers brokers, topics, configs, quotas, offsets, groups and transactions of one root.

    Method names follow Kafka's admin client and kafka-python's. A call that changes metadata
    appends one batch to the metadata log: all of its changes are made, or none. A call that changes
    the committed offsets of one group is atomic, too. ``timeout_ms`` is the time that a call waits
    for an object store. The functions in `spark_log.admin.tables` convert results to Arrow tables.

    Attributes:
        config: the settings of this client.
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
        self.config = AdminConfig.parse(config)
        self._root = checked_root(root)
        self._runtime = AdminRuntime(
            self._root,
            storage_options,
            checked_broker_options(broker_storage_options),
            clock,
            self.config,
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

    def close(self) -> None:
        """Drop the metadata and groups that were read. There is no connection to close."""
        self._runtime.close()

    # --- brokers ---------------------------------------------------------------------------------

    @limited
    def describe_cluster(self) -> ClusterDescription:
        """Describe the cluster: its id and its brokers (storage roots).

        Raises:
            RootNotFoundError: there is no cluster at the root.
            StorageError: the root cannot be read.
        """
        return brokers.describe_cluster(self._runtime.cluster())

    @limited
    def list_brokers(self) -> list[BrokerDescription]:
        """Describe the registered brokers, sorted by id; only the root of broker 0 is read.

        Raises:
            RootNotFoundError: there is no cluster at the root.
            StorageError: the root cannot be read.
        """
        return brokers.list_brokers(self._runtime.cluster())

    @limited
    def register_broker(
        self,
        broker_id: int,
        log_dir: str | os.PathLike[str],
        *,
        rack: str | None = None,
        timeout_ms: float | None = None,
    ) -> BrokerDescription:
        """Register a storage root as a broker of the cluster.

        If the cluster's root does not exist, it is created first.

        The broker's root gets a ``meta.properties``, and then the metadata log gets a record. After
        a failure between the two, register the broker again. Existing partitions are not moved. If
        the data of a broker were lost, fence it, and register it again with an empty root.

        Args:
            broker_id: the broker's id, from 1 on.
            log_dir: the path or URL of its root, without credentials, by which every client opens
                the root. A missing root is created. Its storage options are the client's
                ``broker_storage_options`` for this id.
            rack: the rack that the root is in; None without one.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            DuplicateBrokerRegistrationError: the id or the root is registered; or the broker is
                fenced, and some partition has no other replica that may lead.
            InvalidRootError: the root shares files with another broker's root, belongs to another
                cluster or broker, has the data of an earlier registration, or its URL has
                credentials.
            InvalidConfigurationError: the id is out of range, the rack is empty, or a storage
                option is unknown.
            UnsupportedStoreError: the storage does not support put-if-absent.
            UnknownOutcomeError: it is not known whether the broker was registered.
            StorageError: a root cannot be reached.
        """
        cluster = self._runtime.cluster(create=True)
        return brokers.register_broker(cluster, broker_id, log_dir, rack=rack)

    @limited
    def alter_broker(
        self, broker_id: int, *, rack: str | None, timeout_ms: float | None = None
    ) -> BrokerDescription:
        """Change the rack that a broker's root is in, also of broker 0; None for no rack.

        Its replicas are not moved.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            InvalidConfigurationError: the rack is empty.
        """
        return brokers.alter_broker(self._runtime.cluster(), broker_id, rack=rack)

    @limited
    def fence_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> BrokerDescription:
        """Fence a broker: other replicas lead its partitions. Harmless if it is fenced.

        If no other replica can lead a partition, it has no leader and accepts no records.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
        """
        return brokers.set_fenced(self._runtime.cluster(), broker_id, fenced=True)

    @limited
    def unfence_broker(
        self, broker_id: int, *, timeout_ms: float | None = None
    ) -> BrokerDescription:
        """Let a fenced broker lead partitions again. Harmless if it is not fenced.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
        """
        return brokers.set_fenced(self._runtime.cluster(), broker_id, fenced=False)

    @limited
    def unregister_broker(
        self, broker_id: int, *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """Unregister a broker; one that still holds replicas only gets no new ones from now on.

        Kafka unregisters a broker at once, and its replicas are offline.

        Returns:
            The partitions that it holds replicas of: move them, and call this again. Empty if the
            broker is no longer registered. Its root keeps its files.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered.
            InvalidConfigurationError: it is the root of the metadata log.
        """
        return brokers.unregister_broker(self._runtime.cluster(), broker_id)

    @limited
    def describe_log_dirs(
        self, topic_partitions: Mapping[str, Collection[int]] | Collection[str] | None = None
    ) -> list[LogDirDescription]:
        """Describe the roots of all brokers: the replicas in each, their sizes and offsets.

        Args:
            topic_partitions: topic → partitions, or topics; None for all.

        Returns:
            A description for each broker, sorted by id. If the root of another broker than 0 cannot
            be read, it has no replicas, and an error.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            StorageError: the cluster's root cannot be read.
        """
        return log_dirs.describe_log_dirs(self._runtime.cluster(), topic_partitions)

    # --- topics ----------------------------------------------------------------------------------

    @limited
    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Create topics, all of them or none, in one append to the metadata log.

        If the cluster root does not exist, it is created first.

        Args:
            new_topics: the topics to create.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.
            validate_only: whether to check everything and create nothing.

        Returns:
            Topic name → topic id.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError,
            InvalidReplicationFactorError, InvalidReplicaAssignmentError,
            InvalidConfigurationError: nothing was created.
        """
        return topics.create_topics(self._runtime, new_topics, validate_only=validate_only)

    @limited
    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        The logs that spark-log keeps for itself (metadata, groups, committed offsets) are not
        topics and are not listed.
        """
        return topics.list_topics(self._runtime.cluster())

    @limited
    def describe_topics(
        self, names: Sequence[str] | None = None, *, with_offsets: bool = True
    ) -> list[TopicDescription]:
        """Describe topics: partitions with their offsets and sizes, stripes, config overrides.

        The offsets and sizes of a replicated partition that cannot be read are -1.

        Args:
            names: the topics to describe; None for all.
            with_offsets: whether to read offsets and sizes; if false, only the metadata are read,
                and offsets and sizes are -1.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        return topics.describe_topics(self._runtime.cluster(), names, with_offsets=with_offsets)

    def wait_for_topics(self, topic_names: Sequence[str], timeout_ms: float = 10_000) -> None:
        """Return when all of these topics exist.

        A topic that `create_topics` has created exists when that call returns. This method is for
        topics that another process creates.

        Args:
            topic_names: the topics; neither they nor the root need exist yet.
            timeout_ms: the maximum time to wait.

        Raises:
            KafkaTimeoutError: a topic still did not exist after ``timeout_ms``.
            StorageError: the metadata cannot be read.
        """
        topics.wait_for_topics(self._runtime, topic_names, timeout_ms)

    @limited
    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Increase the number of partitions of topics, for all of them or none.

        Existing records do not move: new records of a key may go to another partition than older
        ones. A process that has a topic open sees the new partitions when it next refreshes the
        metadata.

        Args:
            topic_partitions: topic → its new total number of partitions, or `NewPartitions`.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.
            validate_only: whether to check everything and change nothing.

        Returns:
            Topic → number of partitions after the change.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError, InvalidReplicationFactorError,
            InvalidReplicaAssignmentError: nothing was changed. The number of partitions can only
                grow.
        """
        return topics.create_partitions(
            self._runtime.cluster(), topic_partitions, validate_only=validate_only
        )

    def alter_stripes(
        self,
        topic_stripes: Mapping[str, int],
        *,
        validate_only: bool = False,
        on_progress: Callable[[int], None] = lambda partitions: None,
    ) -> dict[str, int]:
        """Give topics another number of stripes (the setting ``stripes``).

        All records keep their offsets, and whatever reads or appends continues. Appends to a
        partition wait from the moment at which its present log or stripe ends until the change of
        the topic is complete: the time to take its stripes home, and some requests for each
        partition. If the process is killed meanwhile, the same call completes the change; so does
        the next cleaner.

        Args:
            topic_stripes: topic → its new number of stripes; 0 gives each partition a log of its
                own.
            validate_only: whether to check everything and change nothing.
            on_progress: called with the number of partitions whose log or stripe has just ended.

        Returns:
            Topic → its number of stripes after the change.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist; nothing was changed.
            InvalidConfigurationError: a number is not allowed, a topic cannot have stripes, since
                it has replicas on other brokers or ``file.delete.delay.ms`` is 0, or it is getting
                another number; nothing was changed.
            UnknownOutcomeError: it is not known whether a change was made; call this again.
            StorageError: the storage does not answer; call this again.
        """
        return topics.alter_stripes(
            self._runtime.cluster(),
            topic_stripes,
            validate_only=validate_only,
            on_progress=on_progress,
        )

    def delete_topics(
        self,
        names: Sequence[str] = (),
        *,
        topic_ids: Sequence[str] = (),
        timeout_ms: float | None = None,
    ) -> None:
        """Delete topics and their data, all of them or none.

        One append to the metadata log deletes the topics; their files on all brokers are removed
        after that. A cleaner removes files that are left after a crash, or on a broker that could
        not be reached.

        Args:
            names: the names of topics to delete.
            topic_ids: the ids of topics to delete (KIP-516). A topic that was created again under
                the same name has another id, and stays.
            timeout_ms: the maximum time; None for no limit.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist; nothing was deleted.
        """
        topics.delete_topics(self._runtime, names, topic_ids, timeout_ms)

    # --- records and offsets ---------------------------------------------------------------------

    @limited
    def list_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets (``Admin.listOffsets``).

        Args:
            topic_partition_specs: partition → ``OffsetSpec.EARLIEST``, ``LATEST`` or
                ``MAX_TIMESTAMP`` (the first record with the largest timestamp, KIP-734), or a time
                in milliseconds since the epoch: the first record at or after it, in offset order.
            isolation_level: with ``read_committed``, ``LATEST`` is the last stable offset, and no
                record at or after it is found by its time (``ListOffsetsOptions``).
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            Offset and timestamp of each partition; the offset is -1 if there is no such record.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            InvalidTimestampError: a time is negative, too large, or not a whole number.
            InvalidConfigurationError: the argument is not a dict with `TopicPartition` keys, or the
                isolation level is unknown.
        """
        return offsets.list_offsets(
            self._runtime.cluster(), topic_partition_specs, isolation_level=isolation_level
        )

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets: `list_offsets` under the name that kafka-python 3 gives it."""
        return self.list_offsets(
            topic_partition_specs, isolation_level=isolation_level, timeout_ms=timeout_ms
        )

    @limited
    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete all records before an offset (KIP-107).

        The records cannot be read after the call. One exception: a reader that listed the log
        before may still read them, for half of ``file.delete.delay.ms``. A cleaner deletes the
        files later. All in-sync replicas delete the records; one that cannot be reached leaves the
        in-sync replicas, and deletes them when it returns. All arguments are checked before the
        first change; if the storage fails after that, some partitions may be done. It is safe to
        repeat the call.

        Args:
            records_to_delete: partition → the offset that becomes its log start, up to the high
                watermark; -1 deletes all records before this. A partition that already starts
                later does not change.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            The log start offset of each partition after the call, the lowest of its in-sync
            replicas.

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was deleted.
            UnknownOutcomeError: whether the records of a partition were deleted is not known.
        """
        return records.delete_records(self._runtime.cluster(), records_to_delete)

    # --- replicas --------------------------------------------------------------------------------

    @limited
    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, SparkLogError | None]:
        """Elect leaders (KIP-183, KIP-460).

        The replicas before the new leader in the chain leave the in-sync replicas, and return at
        the end of the chain (by ``spark-log replicate``, or a controller).

        Args:
            election_type: the type of election. ``PREFERRED`` elects the first replica, which has
                to be in sync. ``UNCLEAN`` elects a replica that is not in sync if no other one can
                lead and ``unclean.leader.election.enable`` is true. Records that it lacks are lost.
            partitions: the partitions; None for all that need such an election.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Returns:
            Partition → None if a leader was elected, else the error: `ElectionNotNeededError`,
            `PreferredLeaderNotAvailableError`, `EligibleLeadersNotAvailableError` or
            `UnknownTopicOrPartitionError`.

        Raises:
            UnknownOutcomeError: it is not known whether leaders were elected.
        """
        return replication.elect_leaders(self._runtime.cluster(), election_type, partitions)

    @limited
    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Move partitions to other brokers, or give them more or fewer replicas (KIP-455).

        All reassignments of the call begin, or none. The new replicas are copied by a controller,
        by ``spark-log replicate`` or by ``jobs/replicate.py``. When all are in sync the others are
        removed. Until then a reassignment can be changed, or cancelled.

        Args:
            reassignments: partition → the ids of its new brokers, the preferred leader first; None
                to cancel its reassignment.
            allow_replication_factor_change: whether the number of replicas may change (KIP-860).
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            InvalidReplicaAssignmentError: a target is empty, or names a broker twice, or a broker
                that cannot be used; or no original replica can lead after a cancellation.
            InvalidReplicationFactorError: the number of replicas would change.
            NoReassignmentInProgressError: a partition to cancel has no reassignment.
            UnknownOutcomeError: it is not known whether the reassignments began.
        """
        replication.alter_partition_reassignments(
            self._runtime.cluster(),
            reassignments,
            allow_replication_factor_change=allow_replication_factor_change,
        )

    @limited
    def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress of these partitions, or of all, sorted."""
        return list_reassignments(self._runtime.cluster().image(), partitions)

    # --- configs and quotas ----------------------------------------------------------------------

    @limited
    def alter_configs(
        self, config_resources: Sequence[ConfigResource], *, validate_only: bool = False
    ) -> None:
        """Change configs, all of them or none; keys that are not given stay (KIP-339).

        Resources are topics, consumer groups, or the cluster:
        ``ConfigResource(ConfigResourceType.BROKER, "", {…})``. A process that has a topic open
        applies a change when it next refreshes the metadata (``metadata.max.age.ms``).

        Args:
            config_resources: the resources; ``configs`` of each is a dict: key → new value, or
                key → ``(AlterConfigOp, value)``. ``DELETE`` restores the default. ``APPEND`` and
                ``SUBTRACT`` work on list keys only, with several values separated by commas.
            validate_only: whether to check everything and change nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: nothing was changed.
        """
        configs.alter_configs(
            self._runtime.cluster(), config_resources, validate_only=validate_only
        )

    @limited
    def reset_configs(
        self, config_resources: Sequence[ConfigResource], *, validate_only: bool = False
    ) -> None:
        """Restore the defaults of configs, all of them or none.

        Args:
            config_resources: the resources; ``configs`` of each are the keys to reset (the values
                of a dict are ignored). None or empty resets every key that the resource overrides,
                but for ``stripes``: `alter_stripes` changes it.
            validate_only: whether to check everything and change nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: nothing was changed.
        """
        configs.reset_configs(
            self._runtime.cluster(), config_resources, validate_only=validate_only
        )

    @limited
    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        *,
        config_filter: ConfigFilter = "all",
    ) -> dict[str, dict[str, dict[str, ConfigEntry]]]:
        """Describe configs of topics, client ids or the cluster: value, source, default, meaning.

        Args:
            config_resources: the resources; ``configs`` of each are the keys to describe, None for
                all keys.
            config_filter: the keys to return: ``modified`` only those that were set, for this
                resource or for all clients; ``default`` only those that were not set.

        Returns:
            ``{"topic": {name: {key: entry}}}``, as in kafka-python. The configs of the cluster are
            under ``["broker"][""]``, those of client ids under ``["client"]``.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: a topic, a key or the filter is
                not known.
        """
        return configs.describe_configs(
            self._runtime.cluster(), config_resources, config_filter=config_filter
        )

    @limited
    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """List the resources that `describe_configs` can describe (KIP-1142).

        Args:
            resource_types: members of `ConfigResourceType`, or their names in any case; None for
                all.

        Returns:
            Resource type, in lower case → sorted names: every topic, ``""`` for the cluster, and
            the client ids that have a quota (``""`` for the default quotas).

        Raises:
            InvalidConfigurationError: a type is not known.
        """
        return configs.list_config_resources(self._runtime.cluster(), resource_types)

    @limited
    def alter_client_quotas(
        self,
        client_quotas: Mapping[str | None, Mapping[str, int | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change quotas, all of them or none; quotas that are not given stay (KIP-546).

        Running producers and consumers apply a change when they next refresh the metadata. Each
        process has the whole quota of its client id for itself: docs/quotas.md.

        Args:
            client_quotas: client id → quotas. The key None stands for all client ids that have no
                quota of their own. Quotas are ``producer_byte_rate`` and ``consumer_byte_rate`` →
                bytes per second, or None to remove the quota.
            validate_only: whether to check everything and change nothing.

        Raises:
            InvalidConfigurationError: a client id is empty, or a quota is unknown or not above 0;
                nothing was changed.
        """
        quotas.alter_client_quotas(
            self._runtime.cluster(), client_quotas, validate_only=validate_only
        )

    @limited
    def describe_client_quotas(
        self, client_ids: Collection[str | None] | None = None
    ) -> dict[str | None, dict[str, int]]:
        """Return the quotas that were set, in the form that `alter_client_quotas` takes (KIP-546).

        Args:
            client_ids: the client ids to describe; None among them stands for the default quotas of
                all client ids. None instead of a collection describes all.

        Returns:
            Quotas by client id, the default quotas (key None) first. Client ids without a quota of
            their own are left out.
        """
        return quotas.describe_client_quotas(self._runtime.cluster(), client_ids)

    # --- users -----------------------------------------------------------------------------------

    @limited
    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Describe the users that gateways find in the metadata: their mechanisms (KIP-554).

        Users in a gateway's ``sasl.users.file`` are not among them.

        Args:
            users: the names of the users to describe; None for all.

        Raises:
            ResourceNotFoundError: there is no such user.
        """
        return scram_credentials.describe_user_scram_credentials(self._runtime.cluster(), users)

    @limited
    def alter_user_scram_credentials(
        self,
        alterations: Sequence[UserScramCredentialDeletion | UserScramCredentialUpsertion],
    ) -> None:
        """Add, replace and delete credentials of users, all of them or none (KIP-554).

        Gateways of the root apply a change within their ``metadata.max.age.ms``. The first
        credential finalizes the feature ``scram.version``. Nothing else of spark-log asks for
        users: the storage's permissions protect a root.

        Args:
            alterations: the changes, at most one for a user and a mechanism.

        Raises:
            DuplicateResourceError: two changes are for the same user and mechanism.
            InvalidConfigurationError: an element is no alteration.
            ResourceNotFoundError: a credential that is to be deleted does not exist.
            UnacceptableCredentialError: a name is empty, or the iterations are not 4,096 to 16,384;
                nothing was changed.
        """
        scram_credentials.alter_user_scram_credentials(self._runtime.cluster(), alterations)

    # --- features --------------------------------------------------------------------------------

    @limited
    def describe_features(self) -> list[FeatureDescription]:
        """Return the features that this release knows, with the cluster's levels (KIP-584).

        A feature is what a release added to the bytes at rest. Its first use finalizes its level.
        """
        return features.describe_features(self._runtime.cluster())

    @limited
    def update_features(
        self, feature_updates: Mapping[str, int], *, validate_only: bool = False
    ) -> None:
        """Finalize levels of features, all of them or none (KIP-584).

        From then on releases that do not know a level refuse to use the cluster. A level cannot be
        lowered.

        Args:
            feature_updates: the feature's name → the level.
            validate_only: whether to check everything and change nothing.

        Raises:
            InvalidUpdateVersionError: there is no such feature or level, or the level is lower than
                the finalized one; nothing was changed.
        """
        features.update_features(
            self._runtime.cluster(), feature_updates, validate_only=validate_only
        )

    # --- groups ----------------------------------------------------------------------------------

    @limited
    def list_groups(self, *, states_filter: Collection[str] | None = None) -> list[GroupListing]:
        """List the groups that have members or committed offsets, sorted by id.

        Args:
            states_filter: the states of the groups to return, in upper or lower case: ``Empty``,
                ``Stable``, ``Reconciling``, ``PreparingRebalance``, ``CompletingRebalance``; None
                for all.

        Raises:
            InvalidConfigurationError: a state is not known.
            StorageError: groups or offsets cannot be read.
        """
        return self._runtime.groups().list_groups(states_filter)

    @limited
    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups: state, generation, members and their assignments.

        Raises:
            GroupIdNotFoundError: a group has neither members nor committed offsets.
            StorageError: a group cannot be read.
        """
        return self._runtime.groups().describe_groups(group_ids)

    @limited
    def group_members(self, group_id: str) -> tuple[str, ...]:
        """Return the member ids of a group; empty if the group does not exist.

        Raises:
            StorageError: the group cannot be read.
        """
        return self._runtime.groups().members(group_id)

    def group_lag(
        self, group_id: str, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[GroupPartitionLag]:
        """Return the lag of a group, in records and in time, for each of its partitions.

        Args:
            group_id: the group's id.
            isolation_level: the isolation level; with ``read_committed``, the lag ends at the last
                stable offset.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            InvalidConfigurationError: the isolation level is unknown.
            StorageError: the group cannot be read.
        """
        return self.group_lags([group_id], isolation_level=isolation_level)[group_id]

    @limited
    def group_lags(
        self,
        group_ids: Iterable[str],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[str, list[GroupPartitionLag]]:
        """Return the lag of several groups as one cut, by group id.

        The committed offsets of all groups are read before the end of any partition, and the end of
        each partition is read once. The lags of two groups can therefore be compared, unlike the
        results of `list_group_offsets` and `list_offsets`. A lag counts the offsets that can be
        read, and is never negative; offsets that were deleted unread are counted separately
        (`GroupPartitionLag.deleted`).

        Args:
            group_ids: the ids of the groups.
            isolation_level: the isolation level; with ``read_committed``, the lag ends at the last
                stable offset.

        Raises:
            GroupIdNotFoundError: a group has neither members nor committed offsets.
            InvalidConfigurationError: the isolation level is unknown.
            StorageError: a group or a partition cannot be read.
        """
        check_isolation_level(isolation_level)
        groups = self._runtime.groups()
        return groups.lags(groups.describe_groups(group_ids).values(), isolation_level)

    @limited
    def list_group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group.

        Args:
            group_id: the group's id; a group that does not exist has no offsets.
            partitions: the partitions to return; those without a committed offset are left out.
                None for all.
            require_stable: whether to refuse offsets that an open transaction may replace, and to
                include the offsets of decided transactions (KIP-447).

        Raises:
            UnstableOffsetCommitError: with ``require_stable``, a transaction is not decided; call
                again.
            StorageError: the offsets cannot be read.
        """
        return self._runtime.groups().offsets(group_id, partitions, require_stable=require_stable)

    @limited
    def list_consumer_group_offsets(
        self,
        group_specs: Mapping[str, Collection[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of several groups, by group id (KIP-709).

        Args:
            group_specs: group id → partitions to return, None for all. A group that does not exist
                has no offsets; partitions without a committed offset are left out.
            require_stable: whether to refuse offsets that an open transaction may replace, and to
                include the offsets of decided transactions (KIP-447).

        Raises:
            UnstableOffsetCommitError: with ``require_stable``, a transaction is not decided; call
                again.
            StorageError: the offsets cannot be read.
        """
        groups = self._runtime.groups()
        return {
            group_id: groups.offsets(group_id, partitions, require_stable=require_stable)
            for group_id, partitions in group_specs.items()
        }

    @limited
    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Set committed offsets of a group without members, all of them or none (KIP-396).

        Args:
            group_id: the group; it need not exist.
            offsets: partition → the next offset to read. Other partitions keep their offsets.

        Raises:
            GroupNotEmptyError: the group has members; nothing was changed.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was changed.
            UnknownOutcomeError: the offsets may have been changed; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        self._runtime.groups().alter_offsets(group_id, offsets)

    @limited
    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Reset committed offsets of a group without members, all of them or none.

        Args:
            group_id: the group; it need not exist.
            offset_specs: partition → an `OffsetSpec`, an `OffsetTimestamp` (the first record at or
                after that time; the log end offset if there is none), or an offset. An offset
                outside of the log becomes the log start or log end offset.

        Returns:
            Partition → the offset that was committed.

        Raises:
            GroupNotEmptyError: the group has members; nothing was changed.
            UnknownTopicOrPartitionError, InvalidTimestampError, InvalidConfigurationError: nothing
                was changed.
            UnknownOutcomeError: the offsets may have been changed; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        from spark_log.admin.offset_reset import OffsetResetPlanner  # it imports pyarrow.parquet

        specs = check_by_partition("offset_specs", offset_specs)
        plan = OffsetResetPlanner(self._runtime.cluster(), self, group_id).to_specs(specs)
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in plan.offsets.items()}
        self._runtime.groups().alter_offsets(group_id, offsets)
        return offsets

    @limited
    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Delete committed offsets of a group, all of them or none (KIP-496).

        Args:
            group_id: the group.
            partitions: the partitions; no member may subscribe to one of their topics.

        Returns:
            The partitions that had a committed offset.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            GroupSubscribedToTopicError: nothing was changed.
            UnknownOutcomeError: the offsets may have been deleted; it is safe to repeat the call.
            StorageError: nothing was changed.
        """
        return self._runtime.groups().delete_offsets(group_id, partitions)

    @limited
    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, with their committed offsets.

        All groups are checked before the first is deleted. If a consumer joins a deleted group
        again, its generations continue from the last one.

        Raises:
            GroupIdNotFoundError, GroupNotEmptyError: a group does not exist, or has members.
            UnknownOutcomeError, StorageError: some groups may be deleted; it is safe to repeat the
                call.
        """
        self._runtime.groups().delete_groups(group_ids)

    @limited
    def remove_group_members(self, group_id: str, member_ids: Collection[str]) -> None:
        """Remove members from a group (KIP-571); others get their partitions.

        A removed member whose process still runs joins again.

        Raises:
            GroupIdNotFoundError: the group has neither members nor committed offsets.
            UnknownMemberIdError: a member is not in the group; none was removed.
            StorageError: they may still be members.
        """
        self._runtime.groups().remove_members(group_id, member_ids)

    # --- producers and transactions --------------------------------------------------------------

    @limited
    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Describe the idempotent producers of partitions (KIP-664).

        Returns:
            The producers that each partition remembers. A producer that has not appended for
            ``producer.id.expiration.ms`` may be among them until it is forgotten.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            CorruptRecordError: a segment is damaged or missing.
        """
        return producers.describe_producers(self._runtime.cluster(), partitions)

    @limited
    def list_transactions(
        self,
        *,
        state_filters: Collection[str] | None = None,
        producer_id_filters: Collection[int] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids that have not expired, sorted.

        Args:
            state_filters: the allowed states of the newest transaction, such as ``Ongoing``; None
                for all.
            producer_id_filters: the allowed ids of the producer that decides; None for all.
            duration_filter_ms: the time since the start of the newest transaction that must be
                exceeded, by the clock of the process that began it; None for all. As in Kafka,
                the transaction may have ended: ``state_filters`` tells.
            transactional_id_pattern: a regular expression that must match the whole transactional
                id; None for all.

        Raises:
            InvalidConfigurationError: a state does not exist, or the pattern is no regular
                expression.
            CorruptRecordError: a state log is damaged.
            StorageError: the storage does not answer.
        """
        return transactions.list_transactions(
            self._runtime.cluster(),
            state_filters=state_filters,
            producer_id_filters=producer_id_filters,
            duration_filter_ms=duration_filter_ms,
            transactional_id_pattern=transactional_id_pattern,
        )

    @limited
    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Describe transactional ids, in the given order.

        Raises:
            TransactionalIdNotFoundError: an id was never used, or has expired.
            CorruptRecordError: a state log is damaged.
            StorageError: the storage does not answer.
        """
        return transactions.describe_transactions(self._runtime.cluster(), transactional_ids)

    @limited
    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End an open transaction of a partition.

        An undecided transaction is aborted as a whole, in all of its partitions, and its producer
        gets `TransactionAbortableError`. A hanging transaction gets a marker in this partition that
        aborts it. A decided transaction gets the marker of the decision.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            InvalidTxnStateError: the producer has no such open transaction in the partition, or the
                transaction is committed, and has its marker now.
            StorageError: it may not be ended; call again.
        """
        transactions.abort_transaction(self._runtime.cluster(), spec)

    @limited
    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Begin a new epoch of transactional ids: their present producers are fenced.

        A transaction that is ongoing is aborted.

        Returns:
            Transactional id → the new producer id and epoch, which no producer uses.

        Raises:
            SparkLogError: some ids may not be fenced; call again.
        """
        return transactions.fence_producers(self._runtime.cluster(), transactional_ids)

    @limited
    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[HangingTransaction]:
        """Return the transactions that are open in partitions, and that no process will end.

        In the state log such a transaction is complete, or unknown. Kafka's tool suspects all
        transactions that are open for longer than 15 minutes; this result is certain.

        Args:
            partitions: the partitions to read; None for all.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            StorageError: the storage does not answer.
        """
        return transactions.find_hanging_transactions(self._runtime.cluster(), partitions)


def share_cluster(admin: Admin, cluster: Cluster) -> None:
    """Let an `Admin` use a root that is open already, until its `close`.

    Args:
        admin: an `Admin` of the same root, with the same storage options.
        cluster: the opened root.
    """
    admin._runtime.share(cluster)
