"""A replicated partition in a metadata image, and its state after decisions."""

from spark_log.metadata import MetadataImage
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_ID = "id-flights"


def image_of(*, brokers=5, fenced=(), min_insync=1, unclean=False, **fields):
    """Return the metadata of a cluster with partition 0 of a topic.

    Args:
        brokers: highest id of the registered brokers; the lowest is 1.
        fenced: ids of the brokers that are fenced.
        min_insync: ``min.insync.replicas`` of the topic.
        unclean: ``unclean.leader.election.enable`` of the topic.
        fields: fields of the partition; by default, its replicas are 1, 2, 3, all in sync.
    """
    image = MetadataImage()
    for broker_id in range(1, brokers + 1):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=f"i{broker_id}",
                broker_epoch=broker_id,
                root=f"/broker-{broker_id}",
                fenced=broker_id in fenced,
            )
        )
    replicas = fields.get("replicas", (1, 2, 3))
    isr = fields.get("isr", replicas)
    state = {"replicas": replicas, "isr": isr, "leader": isr[0], "leader_epoch": 7} | fields
    image.replay(TopicRecord(name="flights", topic_id=TOPIC_ID))
    image.replay(PartitionRecord(topic_id=TOPIC_ID, partition_id=0, **state))
    image.replay(topic_config("min.insync.replicas", min_insync))
    image.replay(topic_config("unclean.leader.election.enable", str(unclean).lower()))
    return image


def topic_config(key, value):
    """Return the record that sets a config of the topic."""
    return ConfigRecord(resource_type="topic", resource_name="flights", name=key, value=str(value))


def fence(image, *brokers, fenced=True):
    """Change the registrations of brokers, and nothing else."""
    for broker_id in brokers:
        epoch = image.broker(broker_id).broker_epoch
        image.replay(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=epoch, fenced=1 if fenced else -1
            )
        )


def state_of(image):
    """Return the state of the partition."""
    return image.find_by_id(TOPIC_ID).partitions[0]


def after(image, records):
    """Replay records; return the state of the partition."""
    for record in records:
        image.replay(record)
    return state_of(image)
