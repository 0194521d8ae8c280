"""The records of the metadata log: KRaft's names and fields, as versioned JSON.

On storage a record's value is ``{"type": "TopicRecord", "version": 0, "data": {"name": …}}``, with
field names in camel case as in the output of ``kafka-dump-log --cluster-metadata-decoder``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from spark_log.util import VersionedRecord, record_from_json

TOPIC_RESOURCE = "topic"
"""``resource_type`` of a `ConfigRecord` of a topic."""

CLUSTER_RESOURCE = "broker"
"""``resource_type`` of a `ConfigRecord` of the whole cluster, with an empty name (Kafka's default
for all brokers)."""

CLIENT_RESOURCE = "client"
"""``resource_type`` of a `ConfigRecord` with the quota of a client id. KRaft has a separate record
type for quotas. Older versions would refuse to read that; they ignore an unknown resource type."""

GROUP_RESOURCE = "group"
"""``resource_type`` of a `ConfigRecord` of a consumer group, by its id (KIP-848)."""


class MetadataRecord(VersionedRecord):
    """Base class of all metadata records. Fields that a newer version added are kept."""

    model_config = ConfigDict(extra="allow")


class TopicRecord(MetadataRecord):
    """A topic was created.

    The name and the id form the name of a directory. A record that would name a directory
    outside of the root is refused, whichever process wrote it.
    """

    name: Annotated[str, Field(pattern=r"^[^/\x00]+$")]
    topic_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


class PartitionRecord(MetadataRecord):
    """A partition was created. In the metadata image: the partition's present state.

    The fields from `joining` on are stored only if they are not empty, as Kafka's tagged fields.

    Attributes:
        replicas: the brokers (storage roots) that hold the partition, the preferred leader first.
        isr: the in-sync replicas in the order in which they are written, the leader first. Each one
            holds a prefix of the one before it.
        leader: the first of `isr`, or `NO_LEADER`.
        leader_epoch: the number of changes of `isr`, `leader` or `joining`. The log has a barrier
            for each epoch above 0.
        partition_epoch: the number of `PartitionChangeRecord` that were applied.
        joining: the replicas that are written after all of `isr` and are not in sync yet. Not in
            Kafka.
        directories: the number ``k`` of each replica's directory, in the order of `replicas`. The
            directory is ``<topic>-<n>.<k>``, or ``<topic>-<n>`` for 0. Empty if all are 0. Kafka
            has the id of a log directory of the broker instead.
        adding_replicas: the part of `replicas` that a reassignment adds.
        removing_replicas: the part of `replicas` that a reassignment removes.
        eligible_leader_replicas: the replicas outside `isr` that hold every record acknowledged by
            ``min.insync.replicas`` (KIP-966).
        last_known_elr: the last leader, while the partition has none (KIP-966).
        hidden_from_epoch: the first leader epoch with too few in-sync replicas, while there are
            eligible replicas; otherwise 0. Readers see no record of this epoch or of a later one:
            an eligible replica may lack it. The value is computed from the changes.
    """

    version: ClassVar[int] = 1

    topic_id: str
    partition_id: int
    replicas: tuple[int, ...] = (0,)
    isr: tuple[int, ...] = (0,)
    leader: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    joining: tuple[int, ...] = ()
    directories: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    hidden_from_epoch: int = 0

    @property
    def stored_version(self) -> int:
        """0 if only the metadata log's root holds the partition: older versions can read that."""
        return int(self.replicas != (0,) or self.directories != ())

    @property
    def omitted(self) -> set[str]:
        """Names of the fields from `joining` on that are empty."""
        fields = (*_TAGGED_FIELDS, "hidden_from_epoch")
        return {field for field in fields if not getattr(self, field)}

    def directory_of(self, broker_id: int) -> int:
        """Return the number of the directory of a broker's replica; 0 for the first one.

        Raises:
            ValueError: the broker has no replica.
        """
        index = self.replicas.index(broker_id)
        return self.directories[index] if self.directories else 0


_TAGGED_FIELDS: Final = (
    *("joining", "directories", "adding_replicas", "removing_replicas"),
    *("eligible_leader_replicas", "last_known_elr"),
)


class StripesRecord(MetadataRecord):
    """A topic gets another number of stripes, or has got it. Not in Kafka.

    Attributes:
        first_stripe: number of the first of the topic's stripes, which are numbered from it on. A
            number is not used again after the number of stripes changed.
        moving_to: the number of stripes that the topic gets; None if its records stay where they
            are.
    """

    topic_id: str
    first_stripe: int
    moving_to: int | None = None


class PartitionChangeRecord(MetadataRecord):
    """The state of a partition changed. A field that is None keeps its value.

    The attributes are those of `PartitionRecord`. Every change adds 1 to the partition epoch. A
    change of `isr`, `leader` or `joining` adds 1 to the leader epoch, also if it sets the same
    value again.
    """

    stores_defaults: ClassVar[bool] = False

    topic_id: str
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    joining: tuple[int, ...] | None = None
    directories: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None

    def applied_to(self, partition: PartitionRecord) -> PartitionRecord:
        """Return the state of the partition after this change."""
        values = {field: getattr(self, field) for field in CHANGEABLE_FIELDS}
        changes = {field: value for field, value in values.items() if value is not None}
        is_new_epoch = not changes.keys().isdisjoint(("isr", "leader", "joining"))
        changes["leader_epoch"] = partition.leader_epoch + is_new_epoch
        changes["partition_epoch"] = partition.partition_epoch + 1
        if not changes.get("eligible_leader_replicas", partition.eligible_leader_replicas):
            changes["hidden_from_epoch"] = 0
        elif not partition.hidden_from_epoch:
            changes["hidden_from_epoch"] = changes["leader_epoch"]
        return partition.model_copy(update=changes)


CHANGEABLE_FIELDS: Final = ("isr", "leader", "replicas", *_TAGGED_FIELDS)
"""The fields of a partition's state that a `PartitionChangeRecord` can set."""


class ConfigRecord(MetadataRecord):
    """A config override was set, or removed if ``value`` is None."""

    resource_type: str
    resource_name: str
    name: str
    value: str | None


class RemoveTopicRecord(MetadataRecord):
    """A topic was deleted, with its partitions and configs."""

    topic_id: str


class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids was allocated.

    Attributes:
        broker_id: the storage root that the request came through.
        broker_epoch: the epoch of that root's registration; -1 without one.
        next_producer_id: the first id of the next block.
    """

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int


class RegisterBrokerRecord(MetadataRecord):
    """A broker, which is a storage root, was registered.

    The record never contains credentials: clients get them as storage options.

    Attributes:
        broker_id: the broker's id.
        incarnation_id: the id of this registration. The root has the same id, so that another root,
            or an emptied one, is noticed.
        broker_epoch: the number of this registration. It is above that of every earlier
            registration of any broker.
        root: the root's path or URL, in the place of KRaft's ``endPoints``; empty for broker 0, the
            root that has this metadata log.
        rack: the rack that the root is in; None without one.
        fenced: whether the broker may not lead a partition.
        in_controlled_shutdown: whether the broker is being unregistered. It gets no new replica.
        failed: whether a controller fenced the broker, because its root did not answer. Then a
            controller also unfences it.
    """

    broker_id: int
    incarnation_id: str
    broker_epoch: int
    root: str
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    failed: bool = False

    @property
    def omitted(self) -> set[str]:
        """`failed`, unless it is true."""
        return set() if self.failed else {"failed"}


class BrokerRegistrationChangeRecord(MetadataRecord):
    """The state of a registered broker changed.

    Attributes:
        broker_epoch: the epoch of the registration.
        fenced: 1 if the broker was fenced, -1 if it was unfenced, 0 without a change.
        in_controlled_shutdown: 1 if unregistering the broker began, 0 without a change.
        failed: whether a controller fenced the broker, because its root did not answer.
        rack: the broker's new rack, empty for none; None without a change.
    """

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    failed: bool = False
    rack: str | None = None

    @property
    def omitted(self) -> set[str]:
        """`failed`, unless it is true, and `rack`, unless it changes."""
        return (set() if self.failed else {"failed"}) | ({"rack"} if self.rack is None else set())


class UnregisterBrokerRecord(MetadataRecord):
    """A broker was unregistered.

    Attributes:
        broker_epoch: the epoch of the registration that ends.
    """

    broker_id: int
    broker_epoch: int


class FeatureLevelRecord(MetadataRecord):
    """A level of a feature was finalized (`spark_log.metadata.features`).

    Attributes:
        name: the feature's name.
        feature_level: the level.
        release: the first release that knows the level, for the error of a client that does not.
            Not in Kafka.
    """

    name: str
    feature_level: int
    release: str = ""


class RegisterControllerRecord(MetadataRecord):
    """A controller began to work. Controllers with a lower epoch stop.

    Attributes:
        controller_epoch: the number of this controller. It is above that of every earlier one.
        incarnation_id: a random id, by which the controller recognises its own record.
        host: the name of the controller's machine, for people.
    """

    controller_epoch: int
    incarnation_id: str
    host: str = ""


def _from_base64(value: object) -> object:
    return b64decode(value, validate=True) if isinstance(value, str) else value


Base64Bytes = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    PlainSerializer(lambda value: b64encode(value).decode(), return_type=str),
]
"""Bytes that are stored as Base64, as in Kafka's JSON."""


class UserScramCredentialRecord(MetadataRecord):
    """A user got a SCRAM credential, or another one. There is no password in it.

    Attributes:
        name: the user's name.
        mechanism: Kafka's number of the mechanism: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.
        salt: the salt.
        stored_key: the hash of the client's key.
        server_key: the key by which the server proves that it has the credential.
        iterations: the number of iterations of the salted hash.
    """

    name: str
    mechanism: int
    salt: Annotated[Base64Bytes, Field(repr=False)]
    stored_key: Annotated[Base64Bytes, Field(repr=False)]
    server_key: Annotated[Base64Bytes, Field(repr=False)]
    iterations: int


class RemoveUserScramCredentialRecord(MetadataRecord):
    """A user's credential for a mechanism was deleted.

    Attributes:
        name: the user's name.
        mechanism: Kafka's number of the mechanism.
    """

    name: str
    mechanism: int


_BY_NAME: Final[dict[str, type[MetadataRecord]]] = {
    kind.__name__: kind
    for kind in (
        *(TopicRecord, PartitionRecord, PartitionChangeRecord, ConfigRecord, RemoveTopicRecord),
        StripesRecord,
        ProducerIdsRecord,
        *(RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord),
        *(RegisterControllerRecord, FeatureLevelRecord),
        *(UserScramCredentialRecord, RemoveUserScramCredentialRecord),
    )
}


def from_json(value: bytes) -> MetadataRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: the value is not a metadata record, or a newer version of spark-log
            wrote it.
    """
    return record_from_json(value, _BY_NAME, "metadata record")
