"""Builds the metadata records that register, change and unregister brokers (storage roots).

The functions are for `MetadataLog.commit`: they are given the present image, have no effects, and
return no records if there is nothing to change.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_log.errors import (
    DuplicateBrokerRegistrationError,
    InvalidConfigurationError,
    InvalidRootError,
)
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions import UsableBroker, on_broker_fenced, on_broker_unfenced
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from spark_log.metadata.root_broker import ROOT_BROKER_ID

_MAX_BROKER_ID = 2**31 - 1


def register_broker_records(
    image: MetadataImage,
    broker_id: int,
    root: str,
    *,
    cluster_root: str,
    incarnation_id: str,
    rack: str | None = None,
) -> list[MetadataRecord]:
    """Return the records that register a broker; it is not fenced.

    A fenced broker whose data was lost can be registered again with an empty root. Then its
    replicas lack acknowledged records, and are not eligible to lead (KIP-966).

    Args:
        image: the present metadata.
        broker_id: the broker's id, from 1 on.
        root: the path or URL of the broker's root, in the form of `Store.url`.
        cluster_root: the root of the metadata log, in the form of `Store.url`.
        incarnation_id: the new random id in ``meta.properties`` of the broker's root.
        rack: the rack that the root is in; None without one.

    Raises:
        DuplicateBrokerRegistrationError: the id or the root is registered, or is that of a fenced
            broker and some partition has no other replica that may lead without a loss.
        InvalidRootError: the root is inside of another broker's root or around it; or the URL has
            credentials, which the error does not show.
        InvalidConfigurationError: the id is out of range, or the rack is empty.
    """
    if not ROOT_BROKER_ID < broker_id <= _MAX_BROKER_ID:
        raise InvalidConfigurationError(
            f"broker id {broker_id}; give 1 to {_MAX_BROKER_ID} ({ROOT_BROKER_ID} is the root of "
            f"the metadata log)",
            key="broker.id",
        )
    _check_rack(rack)
    check_has_no_credentials(root)
    for broker in image.brokers():
        other_root = cluster_root if broker.broker_id == ROOT_BROKER_ID else broker.root
        is_same = broker.broker_id == broker_id
        if is_same and not broker.fenced:
            raise DuplicateBrokerRegistrationError(
                f"broker {broker_id} is registered with the root {other_root}; give another id, "
                f"or unregister it first; if its data was lost, fence it first",
                broker_id=broker_id,
            )
        if other_root == root and not is_same:
            raise DuplicateBrokerRegistrationError(
                f"broker {broker.broker_id} is registered with the root {other_root}; give another "
                f"root, or unregister it first",
                broker_id=broker.broker_id,
            )
    check_is_outside_of_other_roots(image, broker_id, root, cluster_root)
    return [
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            broker_epoch=image.next_broker_epoch,
            root=root,
            rack=rack,
            fenced=False,
        ),
        *_lost_replicas(image, broker_id),
    ]


def check_is_outside_of_other_roots(
    image: MetadataImage, broker_id: int, root: str, cluster_root: str
) -> None:
    """Check that a broker's new root shares no files with another broker's root.

    Raises:
        InvalidRootError: the root equals another broker's root, is inside of it, or contains it.
    """
    others = [(each.strip(), ROOT_BROKER_ID) for each in cluster_root.split(",")]  # a quorum's
    others += [
        (broker.root, broker.broker_id)
        for broker in image.brokers()
        if broker.broker_id not in (ROOT_BROKER_ID, broker_id)
    ]
    for other, other_id in others:
        if _is_in(root, other) or _is_in(other, root):
            where = "inside of" if _is_in(root, other) else "around"
            raise InvalidRootError(
                f"{root} is {where} {other}, the root of broker {other_id}; give a root that has "
                f"no files of another broker",
                path=root,
            )


def check_has_no_credentials(root: str) -> None:
    """Refuse ``s3://KEY:SECRET@bucket`` and ``https://…?signature``; paths have no such parts.

    Raises:
        InvalidRootError: the URL has credentials. The error does not show them.
    """
    scheme, separator, rest = root.partition("://")
    user = rest.partition("/")[0].rpartition("@")[0]
    if separator and (":" in user or "?" in rest):
        raise InvalidRootError(
            f"the {scheme}:// URL of the root has credentials, and every client could read them in "
            f"the metadata log; give the URL without them, and the credentials as storage options "
            f"of each client",
            path=f"{scheme}://",
        )


def fence_broker_records(
    image: MetadataImage, broker_id: int, *, fenced: bool, failed: bool = False
) -> list[MetadataRecord]:
    """Return the records that fence or unfence a broker; none if it has that state already.

    A fenced broker leads no partition and is in sync with none, unless no other replica can lead.

    Args:
        image: the present metadata.
        broker_id: the broker.
        fenced: whether it shall be fenced.
        failed: whether a controller fences the broker because its root does not answer. A broker
            that a user fenced stays fenced by the user.

    Raises:
        BrokerIdNotRegisteredError: the broker is not registered.
    """
    broker = image.broker(broker_id)
    if broker.fenced == fenced and (failed or not broker.failed):
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=1 if fenced else -1,
        failed=failed,
    )
    if broker.fenced == fenced:  # a user takes over the fence of a controller
        return [change]
    on_change = on_broker_fenced if fenced else on_broker_unfenced
    return [change, *on_change(image, broker_id)]


def alter_broker_records(
    image: MetadataImage, broker_id: int, *, rack: str | None
) -> list[MetadataRecord]:
    """Return the record that moves a broker to another rack; none if it is in it already.

    Replicas stay where they are; placement counts the new rack from now on. Kafka changes
    ``broker.rack`` by a restart of the broker.

    Args:
        image: the present metadata.
        broker_id: the broker, 0 for the root of the metadata log.
        rack: the rack that its root is in; None without one.

    Raises:
        BrokerIdNotRegisteredError: the broker is not registered.
        InvalidConfigurationError: the rack is empty.
    """
    _check_rack(rack)
    broker = image.broker(broker_id)
    if broker.rack == rack:
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.broker_epoch, rack=rack or ""
        )
    ]


def unregister_broker_records(image: MetadataImage, broker_id: int) -> list[MetadataRecord]:
    """Return the record that unregisters a broker, or begins to.

    A broker that holds replicas stays registered and gets no new ones. After its partitions were
    moved, the next call unregisters it. Kafka's controller unregisters the broker at once, and its
    replicas are offline.

    Raises:
        BrokerIdNotRegisteredError: the broker is not registered.
        InvalidConfigurationError: it is the root of the metadata log.
    """
    broker = image.broker(broker_id)
    if broker_id == ROOT_BROKER_ID:
        raise InvalidConfigurationError(
            f"broker {ROOT_BROKER_ID} is the root of the metadata log and cannot be unregistered; "
            f"fence it, so that it leads no partition",
            key="broker.id",
        )
    epoch = broker.broker_epoch
    if not _holds_replicas(image, broker_id):
        return [UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)]
    if broker.in_controlled_shutdown:
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1
        )
    ]


def usable_brokers(image: MetadataImage) -> Iterator[UsableBroker]:
    """Yield the brokers that can get replicas: all but those that are being unregistered."""
    for broker in image.brokers():
        if not broker.in_controlled_shutdown:
            yield UsableBroker(broker.broker_id, broker.rack, broker.fenced)


def _lost_replicas(image: MetadataImage, broker_id: int) -> Iterator[MetadataRecord]:
    """Yield the changes of partitions after the loss of all replicas of a fenced broker."""
    for topic in image.topics():
        for number, partition in topic.partitions.items():
            if broker_id in (*partition.isr, *partition.joining):
                raise DuplicateBrokerRegistrationError(
                    f"partition {topic.name}-{number} has no replica that may lead besides broker "
                    f"{broker_id}; elect another one (unclean), or delete the topic, before the "
                    f"broker is registered with an empty root",
                    broker_id=broker_id,
                )
            if broker_id not in partition.replicas:
                continue
            eligible = partition.eligible_leader_replicas
            yield PartitionChangeRecord(
                topic_id=topic.topic_id,
                partition_id=number,
                # A process that is late, or knows the old root, writes to the old directory.
                directories=tuple(
                    partition.directory_of(each) + (each == broker_id)
                    for each in partition.replicas
                ),
                eligible_leader_replicas=(
                    tuple(each for each in eligible if each != broker_id)
                    if broker_id in eligible
                    else None
                ),
            )


def _check_rack(rack: str | None) -> None:
    if rack == "":
        raise InvalidConfigurationError(
            "the rack is empty; give its name, or leave it out", key="broker.rack"
        )


def _holds_replicas(image: MetadataImage, broker_id: int) -> bool:
    return any(
        broker_id in partition.replicas
        for topic in image.topics()
        for partition in topic.partitions.values()
    )


def _is_in(inner: str, outer: str) -> bool:
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
