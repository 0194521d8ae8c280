"""Short notations of partitions and members, and checks of assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from spark_log.coordinator.assignors import Subscription
from spark_log.types import TopicPartition

Assignment = dict[str, list[TopicPartition]]


def tp(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


@pytest.fixture(scope="session")
def tps() -> Callable[[str], list[TopicPartition]]:
    """``"t-0 u-3"`` as partitions."""
    return lambda text: [tp(each) for each in text.split()]


@pytest.fixture(scope="session")
def member() -> Callable[..., Subscription]:
    """A subscription; topics and owned partitions are words in a string."""

    def subscription(
        topics: str,
        owned: str = "",
        generation: int = -1,
        instance: str | None = None,
    ) -> Subscription:
        claims = frozenset(tp(each) for each in owned.split())
        return Subscription(tuple(topics.split()), claims, generation, instance)

    return subscription


@pytest.fixture(scope="session")
def shown() -> Callable[[Assignment], dict[str, str]]:
    """An assignment as ``{"c1": "t-0 t-1"}``."""
    return lambda assignment: {m: " ".join(map(str, got)) for m, got in assignment.items()}


@pytest.fixture(scope="session")
def check_valid() -> Callable[[Mapping[str, int], Mapping[str, Subscription], Assignment], None]:
    """Fail unless each partition of a subscribed topic is assigned once, to a subscriber."""

    def check(
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        assignment: Assignment,
    ) -> None:
        assert assignment.keys() == subscriptions.keys()
        for name, got in assignment.items():
            assert {each.topic for each in got} <= set(subscriptions[name].topics)
        wanted = {topic for each in subscriptions.values() for topic in each.topics}
        there = [TopicPartition(t, i) for t in wanted for i in range(partitions.get(t, 0))]
        assert Counter(each for got in assignment.values() for each in got) == Counter(there)

    return check


@pytest.fixture(scope="session")
def check_balanced() -> Callable[[Mapping[str, Subscription], Assignment], None]:
    """Fail if one move to another subscriber would improve the balance."""

    def check(subscriptions: Mapping[str, Subscription], assignment: Assignment) -> None:
        for owner, got in assignment.items():
            for each in got:
                for other, subscription in subscriptions.items():
                    if each.topic in subscription.topics:
                        assert len(got) <= len(assignment[other]) + 1, (owner, each, other)

    return check


@pytest.fixture(scope="session")
def rejoin() -> Callable[..., dict[str, Subscription]]:
    """Return the next subscriptions: the same topics, and ownership of the assigned partitions."""

    def again(
        subscriptions: Mapping[str, Subscription], assignment: Assignment, generation: int = 1
    ) -> dict[str, Subscription]:
        return {
            name: Subscription(
                each.topics,
                frozenset(assignment[name]),
                generation,
                each.group_instance_id,
            )
            for name, each in subscriptions.items()
        }

    return again
