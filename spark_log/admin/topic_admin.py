"""`Admin`: topics, their settings, offsets and records. No JVM, no server."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec, Self, TypeVar, get_args

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import AdminConfig, ClientQuotaConfig
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTopicError,
    RootNotFoundError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    check_unicode,
)
from spark_log.log import LogView, PartitionLog
from spark_log.log.log_start import move_log_start
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.configs import ConfigKind, alterations, config_entries, kind_of
from spark_log.metadata.image import DEFAULT_CLIENT, MetadataImage, TopicImage
from spark_log.metadata.metadata_log import Decide
from spark_log.metadata.records import MetadataRecord, RemoveTopicRecord
from spark_log.metadata.topics.creation import creation, growth, validate_new_topic
from spark_log.metadata.topics.deletion import mark_deleted, remove_data
from spark_log.metadata.topics.descriptions import describe_replica, describe_topic
from spark_log.metadata.topics.names import validate_topic_name
from spark_log.metadata.topics.offsets import (
    check_spec,
    checked_by_partition,
    list_offset,
    offset_to_keep,
)
from spark_log.storage import StorageOptions, Store, open_store, with_reserve
from spark_log.storage.deadline import Deadline, LimitedCall, call_within
from spark_log.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    DeletedRecords,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicDescription,
    TopicPartition,
    random_id,
)

_REQUESTS_AT_ONCE = 16
"""So many partitions of a remote root are looked at together."""

ConfigFilter = Literal["all", "modified", "default"]
"""Which settings of topics are described."""

_Answer = TypeVar("_Answer")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="Admin")

_log = logging.getLogger(__name__)


def limited(
    method: Callable[Concatenate[_Self, _P], _Answer],
) -> Callable[Concatenate[_Self, _P], _Answer]:
    """Let a method of an `Admin` end by ``default.api.timeout.ms``, answered or not."""

    @wraps(method)
    def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        return self._within(method.__name__.lstrip("_"), lambda: method(self, *args, **kwargs))

    return call


class Admin:
    """Administers one cluster root. Names follow Kafka's admin client.

    What changes metadata is one append to the metadata log: all of it is done, or nothing. What it
    answers can be had as Arrow tables, by the functions in `spark_log.admin.tables`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        storage_options: StorageOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **config: object,
    ) -> None:
        """Touches nothing yet.

        Every call that waits for an object store ends by ``default.api.timeout.ms``: with
        `KafkaTimeoutError` where nothing was changed, with `UnknownOutcomeError` where something
        may have been. Both are retriable.

        Args:
            root: a path or URL; `create_topics` creates it if there is none.
            storage_options: for the file system; never shown.
            clock: tells the time of metadata records.
            config: keys of `AdminConfig`, in snake_case.

        Raises:
            InvalidConfigurationError: a key is unknown, or its value not possible.
        """
        self.config = AdminConfig.parse(config)
        self._root = root
        self._storage_options = storage_options
        self._clock = clock
        self._opened: Cluster | None = None
        self._is_local: bool | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Forget what was read. There is no connection to close."""
        self._opened = None

    # --- topics ----------------------------------------------------------------------------------

    @limited
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
        for topic in [new_topics] if isinstance(new_topics, NewTopic | str) else new_topics:
            validate_new_topic(topic)
        if isinstance(new_topics, NewTopic):
            raise InvalidTopicError(
                f"new_topics is one NewTopic; give a list, such as [NewTopic({new_topics.name!r})]",
                topic=new_topics.name,
            )
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
                records += creation(topic, topic_ids[topic.name])
            return records

        if validate_only:
            decide(self._image_if_any())
        else:
            self._cluster(create=True).metadata.commit(decide)
        return topic_ids

    @limited
    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        What spark-log keeps for itself (metadata, committed offsets) are no topics here.
        """
        return [topic.name for topic in self._cluster().image().topics()]

    @limited
    def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicDescription]:
        """Describe topics: partitions with their offsets and sizes, and config overrides.

        Args:
            names: which; None for all.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist.
        """
        image = self._cluster().image()
        if names is not None:
            return [self._describe(image.topic(name)) for name in names]
        found = []
        for topic in image.topics():
            with suppress(UnknownTopicOrPartitionError):  # deleted since
                found.append(self._describe(topic))
        return found

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and their data, all of them or none.

        A topic is gone when its record is in the metadata log; its files are removed after that.
        What a crash, or a storage that does not answer, leaves of them a cleaner removes.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist; nothing was deleted.
        """
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        cluster, doomed = self._take_out(names)
        self._remove_data(cluster.store, doomed, began_ms)
        cluster.keep_reserve()

    @limited
    def _take_out(self, names: Sequence[str]) -> tuple[Cluster, tuple[TopicImage, ...]]:
        """Take topics out of the metadata; return the cluster and them."""
        cluster = self._cluster()
        doomed: dict[str, TopicImage] = {}
        marked: set[str] = set()

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            doomed.clear()
            doomed.update((name, image.topic(name)) for name in names)
            # Also one that was created again since; a mark alone deletes nothing.
            unmarked = [each for each in doomed.values() if each.topic_id not in marked]
            mark_deleted(cluster.store, unmarked)
            marked.update(each.topic_id for each in unmarked)
            return [RemoveTopicRecord(topic_id=topic.topic_id) for topic in doomed.values()]

        with_reserve(cluster.store, lambda: cluster.metadata.commit(decide))
        return cluster, tuple(doomed.values())

    def _remove_data(self, store: Store, topics: Collection[TopicImage], began_ms: float) -> None:
        """Remove the data of deleted topics; what is not done in time is left to a cleaner."""
        if store.is_mapped:
            remove_data(store, topics)
            return
        timeout_ms = self.config.default_api_timeout_ms
        left_ms = began_ms + timeout_ms - SYSTEM_CLOCK.monotonic_ms()
        deadline = Deadline("removing deleted topics", "default.api.timeout.ms", max(0.0, left_ms))
        removal = LimitedCall(lambda: remove_data(store, topics), deadline)
        if removal.wait(deadline.left_s()):
            removal.result()
        else:
            _log.warning(
                "not all data of deleted topics were removed within default.api.timeout.ms; a "
                "cleaner will: %s",
                ", ".join(topic.directory for topic in topics),
            )

    @limited
    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Give topics more partitions, all of them or none.

        Records stay where they are: a key whose records went to one partition may go to another
        from now on. Who has a topic open sees the new ones when it looks at the metadata again.

        Args:
            topic_partitions: topic → how many it shall have in all.
            validate_only: check everything and change nothing.

        Returns:
            How many partitions each topic has now (with ``validate_only``: would have).

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError: nothing was changed. The number
                of partitions can only grow.
        """
        totals = {
            name: count.total_count if isinstance(count, NewPartitions) else count
            for name, count in topic_partitions.items()
        }

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            return [
                record
                for name, total_count in totals.items()
                for record in growth(image.topic(name), total_count)
            ]

        self._commit(decide, validate_only)
        return totals

    # --- settings --------------------------------------------------------------------------------

    @limited
    def alter_configs(
        self, config_resources: Sequence[ConfigResource], *, validate_only: bool = False
    ) -> None:
        """Change settings, all of them or none; keys that are not named stay (KIP-339).

        Of topics, or of the cluster: ``ConfigResource(ConfigResourceType.BROKER, "", {…})``. Who
        has a topic open goes by them when it looks at the metadata again (``metadata.max.age.ms``).

        Args:
            config_resources: ``configs`` is a dict: key → new value, or key → ``(AlterConfigOp,
                value)``. To delete goes back to the default. Only values of list keys can be
                appended to and subtracted from, several at once with commas between them.
            validate_only: check everything and change nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: nothing was changed.
        """
        changes = [(kind_of(each), each.name, each.configs) for each in config_resources]
        for kind, name, _ in changes:
            check_unicode(f"the name of a {kind.resource_type}", name)

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            # The later of two that name one topic begins with what the earlier one makes of it.
            overrides: dict[tuple[ConfigKind, str], dict[str, str]] = {}
            records: list[MetadataRecord] = []
            for kind, name, configs in changes:
                own = overrides.setdefault((kind, name), dict(kind.overrides(image, name)))
                given = configs if isinstance(configs, Mapping) else dict.fromkeys(configs or ())
                for record in alterations(name, own, given, kind):
                    records.append(record)
                    own.pop(record.name, None)
                    own |= {} if record.value is None else {record.name: record.value}
            return records

        self._commit(decide, validate_only)

    @limited
    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        *,
        config_filter: ConfigFilter = "all",
    ) -> dict[str, dict[str, dict[str, ConfigEntry]]]:
        """Describe settings of topics, clients or the cluster: value, source, default, meaning.

        Args:
            config_resources: ``configs`` names the keys that are wanted; None for all of them.
            config_filter: ``modified``: only what somebody has set, for them or for all clients;
                ``default``: only what nobody has.

        Returns:
            ``{"topic": {name: {key: entry}}}``, as in kafka-python; the cluster's under
            ``["broker"][""]``, clients' under ``["client"]``.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: a topic, a key or the filter is
                not known.
        """
        if config_filter not in get_args(ConfigFilter):
            raise InvalidConfigurationError(
                f"there is no config filter {config_filter!r}; expected "
                f"{', '.join(get_args(ConfigFilter))}"
            )
        image = self._cluster().image()
        described: dict[str, dict[str, dict[str, ConfigEntry]]] = {}
        for resource in config_resources:
            kind = kind_of(resource)
            keys = None if resource.configs is None else list(resource.configs)
            entries = config_entries(
                kind.overrides(image, resource.name),
                keys,
                kind,
                name=resource.name,
                inherited=kind.inherited(image, resource.name),
            )
            described.setdefault(kind.resource_type, {})[resource.name] = {
                key: entry
                for key, entry in entries.items()
                if config_filter == "all" or entry.is_default == (config_filter == "default")
            }
        return described

    @limited
    def alter_client_quotas(
        self,
        client_quotas: Mapping[str | None, Mapping[str, int | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change quotas, all of them or none; what is not named stays (KIP-546).

        Producers and consumers that run keep them from when they look at the metadata again. Every
        process has the whole quota of its client id for itself: see docs/quotas.md.

        Args:
            client_quotas: client id → quotas; None in place of an id: of all clients that have none
                of their own. Quotas: ``producer_byte_rate`` and ``consumer_byte_rate`` → bytes a
                second, or None to remove it.
            validate_only: check everything and change nothing.

        Raises:
            InvalidConfigurationError: a client id is empty, a quota not known, or not above 0;
                nothing was changed.
        """
        if any(client_id is not None and not client_id for client_id in client_quotas):
            raise InvalidConfigurationError(
                "the client id is empty: give a name, or None for all clients that have no quota "
                "of their own"
            )
        delete = (AlterConfigOp.DELETE, None)
        resources = [
            ConfigResource(
                ConfigResourceType.CLIENT,
                DEFAULT_CLIENT if client_id is None else client_id,
                {key: delete if value is None else value for key, value in quotas.items()},
            )
            for client_id, quotas in client_quotas.items()
        ]
        self.alter_configs(resources, validate_only=validate_only)

    @limited
    def describe_client_quotas(
        self, client_ids: Collection[str | None] | None = None
    ) -> dict[str | None, dict[str, int]]:
        """Return the quotas that were set, as `alter_client_quotas` takes them (KIP-546).

        Args:
            client_ids: whose, None in place of an id for those of all clients; None for everyone.

        Returns:
            Quotas by client id, the one of all clients first; none for who has none of its own.
        """
        image = self._cluster().image()
        found: dict[str | None, dict[str, int]] = {}
        for name in sorted(image.client_overrides):
            client_id = None if name == DEFAULT_CLIENT else name
            if client_ids is None or client_id in client_ids:
                own = image.client_overrides[name]
                known = sorted(own.keys() & ClientQuotaConfig.keys().keys())
                found[client_id] = {key: int(own[key]) for key in known}
        return found

    # --- offsets and records ---------------------------------------------------------------------

    @limited
    def list_offsets(
        self, topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets (``Admin.listOffsets``).

        Args:
            topic_partition_specs: partition → ``OffsetSpec.EARLIEST``, ``LATEST`` or
                ``MAX_TIMESTAMP`` (of several records with the largest timestamp the first one,
                KIP-734), or a time in milliseconds since the epoch: the first record at or after
                it, in offset order.

        Returns:
            Offset and timestamp of each; offset -1 where there is no such record.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist.
            InvalidTimestampError: a time is negative, or too far away, or no number.
            InvalidConfigurationError: what is given is no dict by `TopicPartition`.
        """
        given = checked_by_partition("topic_partition_specs", topic_partition_specs)
        specs = {key: check_spec(spec) for key, spec in given.items()}
        image = self._cluster().image()
        logs = {key: self._log(image, key) for key in specs}
        epochs = {
            key: image.topic(key.topic).partitions[key.partition].leader_epoch for key in specs
        }
        found = self._of_each(
            lambda key: list_offset(logs[key], specs[key], epochs[key]), list(specs), image.topic
        )
        return dict(zip(specs, found, strict=True))

    @limited
    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete all records before an offset (KIP-107).

        They cannot be read any more when this returns, except by who has listed the log before,
        for half of ``file.delete.delay.ms``. Their files are freed by a cleaner. Everything is
        checked first; a storage that fails then may leave some partitions done. To do it again
        does no harm.

        Args:
            records_to_delete: partition → the offset that it shall begin with; -1 deletes all
                records there are. A partition that begins later stays as it is.

        Returns:
            Where each partition begins now.

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: nothing was deleted.
            UnknownOutcomeError: whether the last one's were deleted could not be found out.
        """
        wanted = checked_by_partition("records_to_delete", records_to_delete)
        for key, offset in wanted.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise InvalidConfigurationError(
                    f"{key}: {offset!r} is a {type(offset).__name__}; give the offset that the "
                    f"partition shall begin with, a whole number, or -1 for its end"
                )
        image = self._cluster().image()
        logs = {key: self._log(image, key) for key in wanted}
        offsets = {}
        for key, log in logs.items():
            with self._cluster().telling_deletion(image.topic(key.topic)):
                offsets[key] = offset_to_keep(log.observe(), wanted[key], str(key))
        deleted = {}
        for key, log in logs.items():
            with self._cluster().telling_deletion(image.topic(key.topic)):
                start = with_reserve(log.files.store, partial(move_log_start, log, offsets[key]))
            deleted[key] = DeletedRecords(start)
        return deleted

    @limited
    def describe_log_dirs(
        self, topic_partitions: Mapping[str, Collection[int]] | Collection[str] | None = None
    ) -> list[LogDirDescription]:
        """Describe storage roots: which replicas lie in each, how large they are and how far.

        Args:
            topic_partitions: topic → partitions, or topics; None for all.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist.
        """
        image = self._cluster().image()
        names = [topic.name for topic in image.topics()]
        wanted = [
            TopicPartition(name, number)
            for name in dict.fromkeys(names if topic_partitions is None else topic_partitions)
            for number in (
                topic_partitions[name]
                if isinstance(topic_partitions, Mapping)
                else sorted(image.topic(name).partitions)
            )
        ]
        logs = {key: self._log(image, key) for key in wanted}

        def look(key: TopicPartition) -> LogView | None:
            try:
                with self._cluster().telling_deletion(image.topic(key.topic)):
                    return logs[key].observe()
            except UnknownTopicOrPartitionError:
                if topic_partitions is not None:
                    raise
                return None  # of all there are, this one is not any more

        views = self._of_each(look, wanted, image.topic)
        root = self._cluster().root
        replicas = [
            describe_replica(key, view, f"{root}/{logs[key].directory}")
            for key, view in zip(wanted, views, strict=True)
            if view is not None
        ]
        return [LogDirDescription(0, root, tuple(replicas))]

    # --- how -------------------------------------------------------------------------------------

    def _cluster(self, create: bool = False) -> Cluster:
        if self._opened is None:
            self._opened = Cluster(
                self._root,
                self._storage_options,
                clock=self._clock,
                create=create,
                request_timeout_ms=self.config.request_timeout_ms,
            )
        return self._opened

    def _within(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        if self._is_local is None:
            self._is_local = open_store(self._root, self._storage_options).is_mapped
        if self._is_local:
            return call()
        return call_within(
            self.config.default_api_timeout_ms,
            call,
            what=what,
            setting="default.api.timeout.ms",
        )

    def _image_if_any(self) -> MetadataImage:
        """Return the metadata, which is empty where there is no root yet."""
        try:
            return self._cluster().image()
        except RootNotFoundError:
            return MetadataImage()

    def _commit(self, decide: Decide, validate_only: bool) -> None:
        """Change the metadata of a root that exists, or only decide what would change."""
        metadata = self._cluster().metadata
        if validate_only:
            decide(metadata.image())
        else:
            with_reserve(self._cluster().store, lambda: metadata.commit(decide))

    def _log(self, image: MetadataImage, key: TopicPartition) -> PartitionLog:
        return self._cluster().partition_log(image.topic(key.topic), key.partition)

    def _of_each(
        self,
        look: Callable[[TopicPartition], _Answer],
        partitions: Sequence[TopicPartition],
        topic: Callable[[str], TopicImage],
    ) -> list[_Answer]:
        """Look at partitions: one after the other, where a look costs no request.

        Raises:
            UnknownTopicOrPartitionError: the topic of one was deleted meanwhile.
        """
        cluster = self._cluster()

        def guarded(partition: TopicPartition) -> _Answer:
            with cluster.telling_deletion(topic(partition.topic)):
                return look(partition)

        if cluster.store.is_mapped or len(partitions) < 2:
            return [guarded(partition) for partition in partitions]
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "spark-log-admin") as pool:
            return list(pool.map(guarded, partitions))

    def _describe(self, topic: TopicImage) -> TopicDescription:
        numbers = sorted(topic.partitions)
        logs = {number: self._cluster().partition_log(topic, number) for number in numbers}
        views = self._of_each(
            lambda key: logs[key.partition].observe(),
            [TopicPartition(topic.name, number) for number in numbers],
            lambda _: topic,
        )
        return describe_topic(topic, dict(zip(numbers, views, strict=True)))
