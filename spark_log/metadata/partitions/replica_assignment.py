"""Checks the brokers (storage roots) that a user chooses for the replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_log.errors import InvalidReplicaAssignmentError
from spark_log.metadata.partitions.placement import UsableBroker


def validate_replica_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Iterable[UsableBroker],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> list[tuple[int, ...]]:
    """Check an explicit assignment of replicas, as Kafka's ``ReplicationControlManager`` does.

    Fenced brokers are allowed, as long as each partition has a broker that is not fenced and can
    lead it.

    Args:
        assignment: partition → its replicas, the preferred leader first.
        brokers: the registered brokers, in any order.
        first_partition: the number of the first partition of the assignment: 0 for a new topic, the
            number of existing partitions if some are added.
        replication_factor: the number of replicas that each partition must have, that of the
            topic's existing partitions; None for that of the first partition in the assignment.

    Returns:
        The replicas of each partition, in the order of partitions.

    Raises:
        InvalidReplicaAssignmentError: it is no mapping to lists; there is no partition, or their
            numbers have a gap; a
            partition has no replica, another number of them than the other partitions, a broker
            twice, a broker that is not registered, or only fenced ones.
    """
    if not isinstance(assignment, Mapping):
        raise InvalidReplicaAssignmentError(
            f"replicas are assigned by {assignment!r}, a {type(assignment).__name__}; give a dict "
            f"from each partition to the ids of its brokers, such as {{0: [0, 1], 1: [1, 0]}}"
        )
    fenced = dict(sorted((broker.broker_id, broker.fenced) for broker in brokers))
    expected = range(first_partition, first_partition + len(assignment))
    if not assignment or set(assignment) != set(expected):
        raise InvalidReplicaAssignmentError(
            f"replicas are assigned to partitions {list(assignment)}; assign them to every "
            f"partition from {first_partition} on, without a gap"
        )
    for partition in expected:
        replicas = assignment[partition]
        _check_brokers(partition, replicas, fenced)
        if replication_factor is None:
            replication_factor = len(replicas)
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignmentError(
                f"partition {partition}: {_replicas(len(replicas))} assigned, but other partitions "
                f"of the topic have {replication_factor}; give all partitions the same number",
                partition=partition,
            )
    return [tuple(assignment[partition]) for partition in expected]


def _check_brokers(partition: int, replicas: Sequence[int], fenced: Mapping[int, bool]) -> None:
    if isinstance(replicas, str | bytes) or not isinstance(replicas, Sequence):
        why = f"its replicas are {replicas!r}; give a list of brokers' ids, such as [0, 1]"
    elif not replicas:
        why = "no replica is assigned; give the ids of its brokers, the preferred leader first"
    elif unknown := [broker for broker in replicas if broker not in tuple(fenced)]:
        why = f"broker {unknown[0]!r} is not registered; registered are {list(fenced)}"
    elif twice := [broker for broker in replicas if replicas.count(broker) > 1]:
        why = f"broker {twice[0]} is assigned twice; give each broker at most one replica"
    elif all(fenced[broker] for broker in replicas):
        why = f"brokers {list(replicas)} are all fenced; unfence one, or add one that can lead"
    else:
        return
    raise InvalidReplicaAssignmentError(f"partition {partition}: {why}", partition=partition)


def _replicas(count: int) -> str:
    return f"{count} replica{' is' if count == 1 else 's are'}"
