"""Keeps the partitions of a stripe together: which partitions a member gets of a striped topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from spark_log.coordinator.assignors.partition_assignor import (
    Assignor,
    Subscription,
    in_member_order,
)
from spark_log.types import TopicPartition


def assign_whole_stripes(
    assignor: Assignor,
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    stripes: Mapping[str, Sequence[int]],
) -> dict[str, list[TopicPartition]]:
    """Assign partitions such that members have partitions of few stripes.

    A member sends a request to each stripe that it has a partition of, however many partitions
    these are. How many partitions of each topic a member gets is the assignor's answer. Which of
    them is decided here:

    1. The assignor gets the partitions of a topic in the order of stripes: all of one stripe, then
       all of the next. A sticky assignor takes from a member those that are last in this order.
    2. What a sticky assignor leaves to a member stays there. The other partitions of each topic are
       dealt out again. A member first gets more of the stripes that it has. Then the member that
       needs the most gets a stripe of exactly this number, or else the largest one.

    So *m* members have partitions of *s* stripes in at most ``m + s - 1`` pairs of a member and a
    stripe after a first assignment, and in ``s`` if whole stripes can be shared out equally.

    Topics with the same number of partitions are dealt out alike, by the stripes of the one that
    has the most, so that ``range`` gives partition *i* of each to the same member.

    Args:
        assignor: the assignor.
        partitions: topic → number of its partitions; only existing topics.
        subscriptions: member id → subscription.
        stripes: topic → the stripe of each of its partitions. Topics without stripes are left out.

    Returns:
        Member id → partitions, for every member. If no topic has several stripes, this is the
        assignor's answer.
    """
    by_topic = _stripes_by_topic(partitions, stripes)
    if not by_topic:
        return assignor.assign(partitions, subscriptions)
    orders = {
        topic: sorted(range(len(numbers)), key=numbers.__getitem__)
        for topic, numbers in by_topic.items()
    }
    places = {
        topic: {number: place for place, number in enumerate(order)}
        for topic, order in orders.items()
    }
    placed = {
        member: replace(each, owned=frozenset(_renamed(each.owned, places)))
        for member, each in subscriptions.items()
    }
    answer = {
        member: _renamed(each, orders)
        for member, each in assignor.assign(partitions, placed).items()
    }
    members = in_member_order(subscriptions)
    for topic, numbers in by_topic.items():
        kept = {
            member: subscriptions[member].owned if assignor.is_sticky else frozenset()
            for member in members
        }
        _deal_out_again(topic, numbers, {member: answer[member] for member in members}, kept)
    return answer


def _stripes_by_topic(
    partitions: Mapping[str, int], stripes: Mapping[str, Sequence[int]]
) -> dict[str, Sequence[int]]:
    """Return the stripes by which the partitions of a topic are kept together.

    Topics with the same number of partitions have the same ones. Topics for which there is nothing
    to do are left out.
    """
    most: dict[int, Sequence[int]] = {}
    for topic in sorted(stripes.keys() & partitions.keys()):
        numbers = stripes[topic]
        if len(set(numbers)) > len(set(most.get(len(numbers), (0,)))):
            most[len(numbers)] = numbers
    return {topic: most[count] for topic, count in partitions.items() if count in most}


def _renamed(
    partitions: Iterable[TopicPartition], names: Mapping[str, Mapping[int, int] | Sequence[int]]
) -> list[TopicPartition]:
    """Return partitions with other numbers; those that do not exist are left out."""
    found = []
    for each in partitions:
        of_topic = names.get(each.topic)
        if of_topic is None:
            found.append(each)
        elif 0 <= each.partition < len(of_topic):
            found.append(TopicPartition(each.topic, of_topic[each.partition]))
    return found


def _deal_out_again(
    topic: str,
    numbers: Sequence[int],
    assigned: Mapping[str, list[TopicPartition]],
    kept: Mapping[str, frozenset[TopicPartition]],
) -> None:
    """Deal out the partitions of a topic that members do not keep, in place.

    Args:
        topic: the topic.
        numbers: the stripe of each partition.
        assigned: member id → its partitions of all topics, members in their order.
        kept: member id → the partitions that it keeps, if it is assigned them.
    """
    places: dict[str, list[int]] = {}  # where the lists have partitions to be dealt out
    having: dict[str, set[int]] = {}  # the stripes that members have
    free: dict[int, list[int]] = defaultdict(list)  # partitions to be dealt out, by stripe
    for member, partitions in assigned.items():
        places[member], having[member] = [], set()
        for place, each in enumerate(partitions):
            if each.topic != topic:
                continue
            if each in kept[member]:
                having[member].add(numbers[each.partition])
            else:
                places[member].append(place)
                free[numbers[each.partition]].append(each.partition)
    free = {stripe: sorted(free[stripe]) for stripe in sorted(free)}
    wanted = {member: len(places[member]) for member in assigned if places[member]}
    got: dict[str, list[int]] = {member: [] for member in wanted}

    def give(member: str, stripe: int) -> None:
        given = free[stripe][: wanted[member]]
        got[member] += given
        wanted[member] -= len(given)
        free[stripe] = free[stripe][len(given) :]
        if not free[stripe]:
            del free[stripe]
        if not wanted[member]:
            del wanted[member]

    for member in list(wanted):
        for stripe in sorted(having[member] & free.keys()):
            if member in wanted:
                give(member, stripe)
    members = list(wanted)
    needs = [(-wanted[member], place) for place, member in enumerate(members)]
    heapify(needs)
    while needs:
        _, place = heappop(needs)
        member = members[place]
        equal = (each for each in free if len(free[each]) == wanted[member])
        largest = max(free, key=lambda each: len(free[each]))
        give(member, next(equal, largest))
        if member in wanted:
            heappush(needs, (-wanted[member], place))
    for member, given in got.items():
        for place, number in zip(places[member], sorted(given), strict=True):
            assigned[member][place] = TopicPartition(topic, number)
