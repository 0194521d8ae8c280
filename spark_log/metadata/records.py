"""The records of the metadata log: KRaft's names and fields, as versioned JSON.

On storage a record's value is ``{"type": "TopicRecord", "version": 0, "data": {"name": …}}``, with
field names in camel case as in the output of ``kafka-dump-log --cluster-metadata-decoder``.
"""

from __future__ import annotations

from typing import Final

from spark_log.metadata.versioned_records import VersionedRecord, record_from_json


class MetadataRecord(VersionedRecord):
    """Base class of all metadata records."""


class TopicRecord(MetadataRecord):
    """A topic was created."""

    name: str
    topic_id: str


class PartitionRecord(MetadataRecord):
    """A partition was created.

    Attributes:
        replicas: brokers (storage roots) that hold the partition, the preferred leader first.
        isr: in-sync replicas, the leader first.
    """

    topic_id: str
    partition_id: int
    replicas: tuple[int, ...] = (0,)
    isr: tuple[int, ...] = (0,)
    leader: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0


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

    Credentials are never in it: clients get them as storage options.

    Attributes:
        broker_id: the broker's id.
        incarnation_id: the id of this registration. The root has it too, so that another root, or
            one that was emptied, is noticed.
        broker_epoch: the number of this registration: above that of every earlier one, of any
            broker.
        root: the root's path or URL, in the place of KRaft's ``endPoints``; empty for broker 0, the
            root that has this metadata log.
        rack: the rack that the root is in; None without one.
        fenced: whether the broker may not lead a partition.
        in_controlled_shutdown: whether the broker is being unregistered. It gets no new replica.
    """

    broker_id: int
    incarnation_id: str
    broker_epoch: int
    root: str
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False


class BrokerRegistrationChangeRecord(MetadataRecord):
    """The state of a registered broker changed.

    Attributes:
        broker_epoch: the epoch of the registration.
        fenced: 1 if the broker was fenced, -1 if it was unfenced, 0 without a change.
        in_controlled_shutdown: 1 if unregistering the broker began, 0 without a change.
    """

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0


class UnregisterBrokerRecord(MetadataRecord):
    """A broker was unregistered.

    Attributes:
        broker_epoch: the epoch of the registration that ends.
    """

    broker_id: int
    broker_epoch: int


_BY_NAME: Final[dict[str, type[MetadataRecord]]] = {
    kind.__name__: kind
    for kind in (
        *(TopicRecord, PartitionRecord, ConfigRecord, RemoveTopicRecord, ProducerIdsRecord),
        *(RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord),
    )
}


def from_json(value: bytes) -> MetadataRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not a metadata record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, _BY_NAME, "metadata record")
