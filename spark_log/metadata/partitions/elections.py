"""Elections of leaders, decided as in Kafka's ``ReplicationControlManager.electLeaders``.

The functions are for `MetadataLog.commit`: they are given the present image, have no effects, and
return no records if there is nothing to change. A broker that is fenced never becomes a leader.

Leadership moves only along the order of the in-sync replicas: the replicas before the new leader
leave, and later join again at the end. Each election reduces the in-sync replicas until they have
joined again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from spark_log.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from spark_log.log.chain import NO_LEADER
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change_builder import (
    Election,
    PartitionChangeBuilder,
)
from spark_log.metadata.records import MetadataRecord
from spark_log.types import ElectionType


def elect_leader(
    image: MetadataImage, topic_id: str, partition: int, election_type: ElectionType
) -> list[MetadataRecord]:
    """Return the record of an election that a user asks for.

    With both types, a partition without a leader gets a leader that lacks no acknowledged record,
    if one exists.

    - ``PREFERRED``: the first of the replicas leads. It has to be in sync, and with those behind it
      at least ``min.insync.replicas`` have to be left.
    - ``UNCLEAN``: if no other replica can lead, one that is not in sync does. Kafka's tool does so
      for any topic, spark-log where ``unclean.leader.election.enable`` is true.

    Raises:
        ElectionNotNeededError: the preferred replica leads; for ``UNCLEAN``: the partition has a
            leader.
        PreferredLeaderNotAvailableError: the preferred replica cannot lead.
        EligibleLeadersNotAvailableError: no replica can lead, or each of them lacks acknowledged
            records and the topic does not allow an unclean election.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition)
    if builder is None:
        return []
    if election_type is ElectionType.PREFERRED:
        return _elect_preferred(builder)
    return _elect_unclean(builder)


def elect_online_leader(
    image: MetadataImage,
    topic_id: str,
    partition: int,
    brokers: Collection[int],
    *,
    leader_epoch: int,
) -> list[MetadataRecord]:
    """Return the record that elects a leader, without a loss, for a partition that has none.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        brokers: the ids of the brokers that were found to work; others are not elected.
        leader_epoch: the leader epoch in which the partition was found without a leader.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition, leader_epoch=leader_epoch)
    if builder is None or builder.partition.leader != NO_LEADER:
        return []
    return builder.among(brokers).build(builder.partition, Election.ONLINE)


def rebalance_leader(image: MetadataImage, topic_id: str, partition: int) -> list[MetadataRecord]:
    """Return the record that moves the leadership by one replica, towards the preferred leader.

    Only the leader leaves, and only if all replicas are in sync, none is being reassigned, and
    ``min.insync.replicas`` remain. After the leader has rejoined, the next call moves the
    leadership by one more replica. At the end the in-sync replicas have the order of the replicas.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition)
    if builder is None:
        return []
    before = builder.partition
    preferred = before.replicas[0]
    if before.leader in (preferred, NO_LEADER) or preferred not in builder.can_lead:
        return []
    if {*before.isr} != {*before.replicas} or before.adding_replicas or before.removing_replicas:
        return []
    left = before.isr[1:]
    if left[0] not in builder.can_lead or len(left) < builder.min_insync:
        return []
    return builder.build(before.model_copy(update={"isr": left}))


def imbalanced_partitions(image: MetadataImage) -> Iterator[tuple[str, int]]:
    """Yield topic id and number of partitions whose preferred leader should lead again.

    A preferred leader is included if others lead more of its partitions than
    ``leader.imbalance.per.broker.percentage`` allows (Kafka's
    ``autoTriggerPreferredReplicaLeaderElection``).
    """
    allowed = image.cluster_config().leader_imbalance_per_broker_percentage / 100
    count: defaultdict[int, int] = defaultdict(int)
    led_by_others: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for topic in image.topics():
        for partition in topic.partitions.values():
            preferred = partition.replicas[0]
            count[preferred] += 1
            if partition.leader != preferred:
                led_by_others[preferred].append((topic.topic_id, partition.partition_id))
    for preferred, partitions in led_by_others.items():
        if len(partitions) > allowed * count[preferred]:
            yield from partitions


def _elect_preferred(builder: PartitionChangeBuilder) -> list[MetadataRecord]:
    before = builder.partition
    preferred = before.replicas[0]
    if before.leader == preferred:
        raise builder.error(ElectionNotNeededError, f"broker {preferred} leads it already")
    if before.leader == NO_LEADER:
        if not (records := builder.build(before, Election.ONLINE)):
            raise builder.error(PreferredLeaderNotAvailableError, builder.why_no_leader())
        return records
    if preferred not in before.isr:
        why = f"broker {preferred}, the preferred leader, is not in sync; start `replicate`"
    elif preferred not in builder.can_lead:
        why = f"broker {preferred}, the preferred leader, is fenced; unfence it"
    else:
        left = before.isr[before.isr.index(preferred) :]
        if len(left) >= builder.min_insync:
            return builder.build(before.model_copy(update={"isr": left}))
        why = (
            f"with broker {preferred} as the leader, {list(left)} of {list(before.isr)} would stay "
            f"in sync, and min.insync.replicas is {builder.min_insync}; the controller moves the "
            f"leadership step by step if auto.leader.rebalance.enable is true"
        )
    raise builder.error(PreferredLeaderNotAvailableError, why)


def _elect_unclean(builder: PartitionChangeBuilder) -> list[MetadataRecord]:
    before = builder.partition
    if before.leader != NO_LEADER:
        raise builder.error(ElectionNotNeededError, f"broker {before.leader} leads it")
    election = Election.UNCLEAN if builder.allows_unclean else Election.ONLINE
    if records := builder.build(before, election):
        return records
    why = builder.why_no_leader()
    if builder.can_lead.intersection(before.replicas):
        why += "; to elect another replica and lose records, set unclean.leader.election.enable"
    raise builder.error(EligibleLeadersNotAvailableError, why)
