"""The range assignor: of each topic, each member gets consecutive partitions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from spark_log.coordinator.assignors.partition_assignor import (
    Subscription,
    in_member_order,
    partitions_of,
    subscribers_by_topic,
)
from spark_log.types import TopicPartition


class RangeAssignor:
    """Kafka's ``RangeAssignor``.

    For each topic, *n* partitions in order are divided among *m* members in order (static members
    first, by instance id): each gets ``n // m``, the first ``n % m`` members one more. Topics with
    the same number of partitions and the same subscribers are thus *co-partitioned*: partition *i*
    of each goes to the same member, and a join by key needs no shuffle.
    """

    name = "range"
    is_sticky = False

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
    ) -> dict[str, list[TopicPartition]]:
        """Return an assignment; the list of each member is sorted by topic and partition."""
        members = in_member_order(subscriptions)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        for topic, subscribers in subscribers_by_topic(partitions, subscriptions, members).items():
            quota, larger = divmod(partitions[topic], len(subscribers))
            rest = iter(partitions_of(topic, partitions[topic]))
            for turn, member in enumerate(subscribers):
                assigned[member].extend(islice(rest, quota + (turn < larger)))
        return dict(zip(members, assigned, strict=True))
