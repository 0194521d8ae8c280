"""The cooperative sticky assignor: the sticky assignment, reached in two steps (KIP-429)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from spark_log.coordinator.assignors.sticky import StickyAssignor
from spark_log.types import TopicPartition


class CooperativeStickyAssignor(StickyAssignor):
    """Kafka's ``CooperativeStickyAssignor``.

    `assign` returns the target, which is that of the sticky assignor. `cooperative_step` returns
    the part of it that members may have while others still own revoked partitions. Members continue
    to read the partitions that they keep.
    """

    name = "cooperative-sticky"


def cooperative_step(
    target: Mapping[str, list[TopicPartition]],
    owned: Mapping[str, Collection[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Return the target without partitions that other members own (Kafka's ``adjustAssignment``).

    No partition gets two owners in this way. When all members have released the partitions that
    they lose, the next step is the target. A partition that two members own is left out for both,
    unless `claims_in_force` has dropped one of the claims from ``owned``.

    Args:
        target: the result of `CooperativeStickyAssignor.assign`.
        owned: the partitions that each member may still read, including members that are not in
            ``target``.
    """
    owners = Counter(partition for each in owned.values() for partition in set(each))
    step = {}
    for member, partitions in target.items():
        own = frozenset(owned.get(member, ()))
        step[member] = [each for each in partitions if owners[each] == (each in own)]
    return step
