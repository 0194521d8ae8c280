"""The cooperative sticky assignor: the sticky target, reached in two steps (KIP-429)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from spark_log.coordinator.assignors.sticky import StickyAssignor
from spark_log.types import TopicPartition


class CooperativeStickyAssignor(StickyAssignor):
    """Kafka's ``CooperativeStickyAssignor``.

    `assign` gives the target, which is that of the sticky assignor; `cooperative_step` what may be
    handed out of it while others still own what they have to give up. Members go on with what they
    keep meanwhile.
    """

    @property
    def name(self) -> str:
        """``cooperative-sticky``."""
        return "cooperative-sticky"


def cooperative_step(
    target: Mapping[str, list[TopicPartition]],
    owned: Mapping[str, Collection[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Return ``target`` without what somebody else still owns (Kafka's ``adjustAssignment``).

    So no partition has two owners. Once everybody has given up what this leaves out for them, the
    next step is the target. A partition that two members own is left out for both, unless one of
    them is dropped from ``owned`` by `claims_in_force`.

    Args:
        target: what `CooperativeStickyAssignor.assign` gave.
        owned: what each member may still be at work on, members that are not in ``target``
            included.
    """
    owners = Counter(partition for each in owned.values() for partition in set(each))
    step = {}
    for member, partitions in target.items():
        own = frozenset(owned.get(member, ()))
        step[member] = [each for each in partitions if owners[each] == (each in own)]
    return step
