"""The metadata after replaying the metadata log: topics, partitions, configs and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_log.config import ClientQuotaConfig, ClusterConfig, GroupConfig, ReplicationConfig
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
    nearest,
)
from spark_log.metadata.features import TABLE_VERSION, check_feature_level
from spark_log.metadata.records import (
    CLIENT_RESOURCE,
    CLUSTER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    StripesRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from spark_log.metadata.root_broker import ROOT_BROKER_ID
from spark_log.metadata.topic_image import TopicImage, parse_overrides
from spark_log.util import IN_PROCESS

DEFAULT_CLIENT = ""
"""``resource_name`` of the quotas that apply to client ids without a quota of their own."""

_ROOT_BROKER = RegisterBrokerRecord(
    broker_id=ROOT_BROKER_ID, incarnation_id="", broker_epoch=-1, root="", fenced=False
)

_INHERITED = frozenset(ReplicationConfig.keys())
"""Configs of the cluster that topics inherit unless they override them."""

_NAMES_SHOWN = 5
"""Number of topics that an error names if no existing name is similar to the unknown name."""


class MetadataImage:
    """The metadata after a prefix of the metadata log. Only `replay` changes it.

    Attributes:
        offset: the offset of the metadata log after the last record that was replayed.
        next_producer_id: the first producer id that has not been allocated.
        next_broker_epoch: the epoch of the next registration of a broker.
        controller: the newest controller; None if there was none yet.
        cluster_overrides: the config overrides of the whole cluster.
        client_overrides: client id, or `DEFAULT_CLIENT` → its quotas; without empty entries.
        group_overrides: id of a consumer group → its configs; without empty entries.
        features: name of a feature → the record of its finalized level.
        scram_credentials: name of a user → number of a mechanism → the user's credential; without
            empty entries.
        is_complete: whether this version understands all of the records. Otherwise `records` would
            lose data that a newer version of spark-log has written.
    """

    def __init__(self) -> None:
        self.is_complete = True
        self.offset = 0
        self.next_producer_id = 0
        self.next_broker_epoch = 0
        self.controller: RegisterControllerRecord | None = None
        self.cluster_overrides: dict[str, str] = {}
        self.client_overrides: dict[str, dict[str, str]] = {}
        self.group_overrides: dict[str, dict[str, str]] = {}
        self.features: dict[str, FeatureLevelRecord] = {}
        self.scram_credentials: dict[str, Mapping[int, UserScramCredentialRecord]] = {}
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[str, str] = {}
        self._unshared: set[str] = set()
        """Ids of the topics that no other image has, so that `replay` may change them."""
        self._brokers = {ROOT_BROKER_ID: _ROOT_BROKER}

    def __repr__(self) -> str:
        return f"<MetadataImage of {len(self._names)} topics>"

    def copy(self) -> MetadataImage:
        """Return a copy; records replayed on it do not change this image."""
        image = MetadataImage()
        image.is_complete = self.is_complete
        image.offset = self.offset
        image.next_producer_id = self.next_producer_id
        image.cluster_overrides = dict(self.cluster_overrides)
        image.client_overrides = dict(self.client_overrides)
        image.group_overrides = dict(self.group_overrides)
        image.features = dict(self.features)
        image.scram_credentials = dict(self.scram_credentials)
        image._topics = dict(self._topics)
        image._names = dict(self._names)
        image.next_broker_epoch = self.next_broker_epoch
        image.controller = self.controller
        image._brokers = dict(self._brokers)
        return image

    def after(self, records: Iterable[MetadataRecord]) -> MetadataImage:
        """Return the image after these records; this image stays as it is.

        Raises:
            SparkLogError: See `replay`.
        """
        image = self.copy()
        for record in records:
            image.replay(record)
        return image

    def records(self) -> Iterator[MetadataRecord]:
        """Yield records that make this image when they are replayed on an empty one."""
        yield from self.features.values()
        for key, value in self.cluster_overrides.items():
            yield _config(CLUSTER_RESOURCE, "", key, value)
        for kind, named in (
            (CLIENT_RESOURCE, self.client_overrides),
            (GROUP_RESOURCE, self.group_overrides),
        ):
            for name, overrides in named.items():
                for key, value in overrides.items():
                    yield _config(kind, name, key, value)
        for credentials in self.scram_credentials.values():
            yield from credentials.values()
        if self.next_producer_id:
            yield ProducerIdsRecord(next_producer_id=self.next_producer_id)
        if self.controller is not None:
            yield self.controller
        yield from self._broker_records()
        for topic in self.topics():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            if topic.first_stripe or topic.moving_to is not None:
                yield StripesRecord(
                    topic_id=topic.topic_id,
                    first_stripe=topic.first_stripe,
                    moving_to=topic.moving_to,
                )
            for number in sorted(topic.partitions):
                yield topic.partitions[number]
            for key, value in topic.overrides.items():
                yield _config(TOPIC_RESOURCE, topic.name, key, value)

    def _broker_records(self) -> Iterator[MetadataRecord]:
        epochs = [broker.broker_epoch for broker in self._brokers.values()]
        last_epoch = self.next_broker_epoch - 1
        if last_epoch > max(epochs):  # the epoch of a registration that has ended
            gone = max(self._brokers) + 1
            yield RegisterBrokerRecord(
                broker_id=gone, incarnation_id="", broker_epoch=last_epoch, root=""
            )
            yield UnregisterBrokerRecord(broker_id=gone, broker_epoch=last_epoch)
        for broker in self.brokers():
            if broker != _ROOT_BROKER:
                yield broker

    @property
    def may_have_tables(self) -> bool:
        """Whether a topic of the cluster has a table, or ever had one."""
        return TABLE_VERSION.name in self.features

    def topics(self) -> Iterator[TopicImage]:
        """Yield the topics, sorted by name."""
        for name in sorted(self._names):
            yield self._topics[self._names[name]]

    def cluster_config(self) -> ClusterConfig:
        """Return the configs of the whole cluster, such as the limits of consumer groups."""
        return parse_overrides(ClusterConfig, self.cluster_overrides)

    def inherited(self) -> dict[str, str]:
        """Return the cluster's overrides that apply to topics without an override of their own."""
        return {key: value for key, value in self.cluster_overrides.items() if key in _INHERITED}

    def inherited_by_groups(self) -> dict[str, str]:
        """Return the cluster's overrides that apply to groups without an override of their own."""
        known = GroupConfig.keys()
        return {
            name: value
            for key, value in self.cluster_overrides.items()
            if key.startswith("group.") and (name := key.removeprefix("group.")) in known
        }

    def group_config(self, group_id: str) -> GroupConfig:
        """Return the configs of a consumer group: its own, else the cluster's."""
        own = self.group_overrides.get(group_id, {})
        return parse_overrides(GroupConfig, self.inherited_by_groups() | own)

    def client_quota(self, client_id: str) -> ClientQuotaConfig:
        """Return the quotas of a client id: for each kind its own, else the default, else none.

        A value that this version cannot parse is ignored and counted: a client must not fail
        because of a quota.
        """
        default = self.client_overrides.get(DEFAULT_CLIENT, {})
        understood = {}
        for key, value in (default | self.client_overrides.get(client_id, {})).items():
            with IN_PROCESS.suppress("quota", client_id, InvalidConfigurationError):
                ClientQuotaConfig.parse({key: value})
                understood[key] = value
        return ClientQuotaConfig.parse(understood)

    def brokers(self) -> Iterator[RegisterBrokerRecord]:
        """Yield the registrations of brokers with their present state, sorted by id.

        Broker 0, the root that has the metadata log, is always included.
        """
        for broker_id in sorted(self._brokers):
            yield self._brokers[broker_id]

    def broker(self, broker_id: int) -> RegisterBrokerRecord:
        """Return the registration of a broker, with its present state.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered; the message names the
                registered ids.
        """
        found = self._brokers.get(broker_id)
        if found is None:
            raise BrokerIdNotRegisteredError(
                f"broker {broker_id!r} is not registered; registered are {sorted(self._brokers)}",
                broker_id=broker_id,
            )
        return found

    @property
    def controller_epoch(self) -> int:
        """The epoch of the newest controller; 0 if there was none yet."""
        return 0 if self.controller is None else self.controller.controller_epoch

    def find(self, name: str) -> TopicImage | None:
        """Return the topic with this name, or None."""
        topic_id = self._names.get(name)
        return None if topic_id is None else self._topics[topic_id]

    def find_by_id(self, topic_id: str) -> TopicImage | None:
        """Return the topic with this id, or None if it never existed or was deleted."""
        return self._topics.get(topic_id)

    def topic(self, name: str) -> TopicImage:
        """Return the topic with this name.

        Raises:
            UnknownTopicOrPartitionError: it does not exist; the message names similar topics.
            InvalidTopicError: the name is not a string.
        """
        found = self.find(name)
        if found is not None:
            return found
        if not isinstance(name, str):
            raise InvalidTopicError(f"a topic's name is a string; got {name!r}")
        near = nearest(name, self._names, limit=3)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif self._names:
            more = len(self._names) - _NAMES_SHOWN
            hint = f"existing topics: {', '.join(sorted(self._names)[:_NAMES_SHOWN])}"
            hint += f" and {more} more" if more > 0 else ""
        else:
            hint = "there are no topics: create one first"
        raise UnknownTopicOrPartitionError(
            f"there is no topic {name!r}; {hint}", topic=name, near=near
        )

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record.

        Raises:
            CorruptRecordError: the record refers to a topic, partition or broker that does not
                exist.
            UnsupportedVersionError: the cluster uses a feature that this release does not know.
        """
        if record.model_extra:
            self.is_complete = False
        match record:
            case TopicRecord(name=name, topic_id=topic_id):
                self._unshared.add(topic_id)
                self._topics[topic_id] = TopicImage(name, topic_id, inherited=self.inherited())
                self._names[name] = topic_id
            case PartitionRecord():
                self._writable_topic(record.topic_id).partitions[record.partition_id] = record
            case PartitionChangeRecord() | StripesRecord():
                self._replay_change(record)
            case ConfigRecord():
                self._replay_config(record)
            case RemoveTopicRecord(topic_id=topic_id):
                del self._names[self._writable_topic(topic_id).name]
                del self._topics[topic_id]
            case FeatureLevelRecord():
                check_feature_level(record)
                self.features[record.name] = record
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                self._replay_credential(record)
            case ProducerIdsRecord(next_producer_id=next_producer_id):
                self.next_producer_id = max(self.next_producer_id, next_producer_id)
            case RegisterControllerRecord(controller_epoch=epoch):
                self.controller = record if epoch > self.controller_epoch else self.controller
            case RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch):
                self._brokers[broker_id] = record
                self.next_broker_epoch = max(self.next_broker_epoch, epoch + 1)
            case BrokerRegistrationChangeRecord() | UnregisterBrokerRecord():
                self._replay_broker_change(record)

    def _replay_config(self, record: ConfigRecord) -> None:
        name = record.resource_name
        if record.resource_type == TOPIC_RESOURCE:
            _set(self._writable_topic(self._names.get(name, "")).overrides, record)
        elif record.resource_type == CLUSTER_RESOURCE and not name:
            _set(self.cluster_overrides, record)
            if record.name in _INHERITED:
                self._topics = {
                    topic_id: replace(topic, inherited=self.inherited())
                    for topic_id, topic in self._topics.items()
                }
        elif record.resource_type == CLIENT_RESOURCE:
            _set_named(self.client_overrides, record)
        elif record.resource_type == GROUP_RESOURCE:
            _set_named(self.group_overrides, record)
        else:  # of a kind that a newer version added
            self.is_complete = False

    def _replay_credential(
        self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord
    ) -> None:
        found = dict(self.scram_credentials.pop(record.name, {}))  # do not change other images
        if isinstance(record, UserScramCredentialRecord):
            found[record.mechanism] = record
        elif found.pop(record.mechanism, None) is None:
            raise CorruptRecordError(
                f"the metadata log removes a credential of user {record.name!r}, mechanism "
                f"{record.mechanism}, which no record created"
            )
        self.scram_credentials |= {record.name: found} if found else {}

    def _replay_broker_change(
        self, record: BrokerRegistrationChangeRecord | UnregisterBrokerRecord
    ) -> None:
        broker = self._registered(record)
        if isinstance(record, UnregisterBrokerRecord):
            del self._brokers[broker.broker_id]
            self._brokers.setdefault(ROOT_BROKER_ID, _ROOT_BROKER)
            return
        changes = {
            "fenced": record.fenced > 0 if record.fenced else broker.fenced,
            "failed": record.failed if record.fenced else broker.failed,
            "in_controlled_shutdown": broker.in_controlled_shutdown
            or record.in_controlled_shutdown > 0,
            "rack": broker.rack if record.rack is None else record.rack or None,
        }
        self._brokers[broker.broker_id] = broker.model_copy(update=changes)

    def _replay_change(self, record: PartitionChangeRecord | StripesRecord) -> None:
        topic = self._writable_topic(record.topic_id)
        if isinstance(record, StripesRecord):
            topic.first_stripe, topic.moving_to = record.first_stripe, record.moving_to
            return
        partitions = topic.partitions
        try:
            partitions[record.partition_id] = record.applied_to(partitions[record.partition_id])
        except KeyError:
            raise CorruptRecordError(
                f"the metadata log has a change of partition {record.partition_id} of topic id "
                f"{record.topic_id!r}, which no record created"
            ) from None

    def _registered(
        self, record: BrokerRegistrationChangeRecord | UnregisterBrokerRecord
    ) -> RegisterBrokerRecord:
        """Return the registration that a record changes."""
        broker = self._brokers.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise CorruptRecordError(
                f"the metadata log has a {type(record).__name__} for broker {record.broker_id}, "
                f"epoch {record.broker_epoch}, which is not registered then"
            )
        return broker

    def _writable_topic(self, topic_id: str) -> TopicImage:
        """Return a topic that may be changed: a copy if another image shares it."""
        try:
            topic = self._topics[topic_id]
        except KeyError:
            raise CorruptRecordError(
                f"the metadata log has a record for topic id {topic_id!r}, which no record created"
            ) from None
        if topic_id not in self._unshared:
            self._unshared.add(topic_id)
            topic = replace(
                topic, partitions=dict(topic.partitions), overrides=dict(topic.overrides)
            )
            self._topics[topic_id] = topic
        return topic


def _config(resource_type: str, resource_name: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=resource_type, resource_name=resource_name, name=name, value=value
    )


def _set_named(named: dict[str, dict[str, str]], record: ConfigRecord) -> None:
    overrides = dict(named.pop(record.resource_name, {}))  # do not change other images
    _set(overrides, record)
    named |= {record.resource_name: overrides} if overrides else {}


def _set(overrides: dict[str, str], record: ConfigRecord) -> None:
    if record.value is None:
        overrides.pop(record.name, None)
    else:
        overrides[record.name] = record.value
