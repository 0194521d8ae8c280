"""Compares the answers of our assignors with those of Kafka's own classes, on random groups.

    python -m benchmarks.assignors_vs_kafka

Kafka's classes (of the broker's jars, by Maven) run in a JVM that receives the groups. Range and
round robin must be equal. Sticky must be equal if Kafka's answer does not depend on hash codes:
with short member ids, Java's hash maps iterate in the order of the ids. With ids as clients have
them, hash codes decide which of several members gets one partition more; then only sizes and the
number of moves are compared. The cooperative step starts from Kafka's own target, and must equal
Kafka's.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.kafka_broker import BROKER_ARTIFACTS, fetch_jars, find_java
from spark_log.coordinator.assignors import (
    Subscription,
    assignor,
    claims_in_force,
    cooperative_step,
)
from spark_log.coordinator.assignors.claims import uncontested
from spark_log.types import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
_SOURCE = Path(__file__).parent / "KafkaAssignors.java"
_Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True)
class Group:
    """One case: an assignor's name and its input."""

    assignor: str
    partitions: dict[str, int]
    subscriptions: dict[str, Subscription]

    @property
    def has_equal_subscriptions(self) -> bool:
        return len({frozenset(each.topics) for each in self.subscriptions.values()}) == 1

    @property
    def has_ids_in_order(self) -> bool:
        """Whether a Java hash map of these members iterates in the order of their ids."""
        return max(map(len, self.subscriptions)) == 1 and (
            len(self.subscriptions) > 12 or max(self.subscriptions) <= "l"
        )

    def json(self) -> str:
        partitions = {
            topic: count
            for topic, count in self.partitions.items()
            if any(topic in each.topics for each in self.subscriptions.values())
        }
        members = {
            member: {
                "topics": each.topics,
                "owned": sorted(each.owned),
                "generation": each.generation,
                "instance": each.group_instance_id,
            }
            for member, each in self.subscriptions.items()
        }
        return json.dumps({"assignor": self.assignor, "partitions": partitions, "members": members})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=4_000, help="per assignor and kind (4000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--show", type=int, default=0, help="maximum number of differences to print (0)"
    )
    parser.add_argument(
        "--record", type=Path, help="file to write small groups and Kafka's answers to"
    )
    options = parser.parse_args()
    chance = random.Random(options.seed)
    groups = [
        random_group(chance, name, hashed=hashed)
        for name in NAMES
        for hashed in (False, True)
        for _ in range(options.cases)
    ]
    found: Counter[tuple[str, str, str, str]] = Counter()
    shown = 0
    recorded: list[str] = []
    targets = [
        replace(group, assignor="sticky") if group.assignor == "cooperative-sticky" else group
        for group in groups
    ]
    answers = zip(groups, ask_kafka(groups), ask_kafka(targets), strict=True)
    for group, kafkas, kafkas_target in answers:
        if group.assignor == "cooperative-sticky":
            verdict = compare_steps(group, kafkas, kafkas_target)
        else:
            verdict = compare(group, kafkas)
        ids = "ids in order" if group.has_ids_in_order else "hashed ids"
        topics = "equal" if group.has_equal_subscriptions else "different"
        found[group.assignor, topics, ids, verdict] += 1
        if verdict == "same" and group.has_ids_in_order and len(group.json()) < 700:
            case = {"group": json.loads(group.json()), "kafka": kafkas}
            recorded.append(json.dumps(case, separators=(",", ":")))
        if verdict.startswith("DIFFERENT") and shown < options.show:
            shown += 1
            print(verdict, group, f"Kafka: {kafkas}", f"ours: {ours(group)}", sep="\n", end="\n\n")
    for (name, topics, ids, verdict), count in sorted(found.items()):
        print(f"{name:19} {topics + ' subscriptions':24} {ids:13} {count:6}  {verdict}")
    if options.record:
        some = recorded[:: max(1, len(recorded) // 250)]
        options.record.write_text("".join(f"{each}\n" for each in some))
    sys.exit(any(verdict.startswith("DIFFERENT") for *_, verdict in found))


def random_group(chance: random.Random, name: str, *, hashed: bool) -> Group:
    """Return a group after a rebalance, or with random claims."""
    counts = [chance.randint(1, chance.choice((5, 12, 30))) for _ in range(chance.randint(1, 3))]
    partitions = {f"topic{i}": chance.choice(counts) for i in range(chance.randint(1, 8))}
    size = chance.randint(1, chance.choice((4, 12, 24)))
    ids = [f"consumer-{UUID(int=chance.getrandbits(128))}" for _ in range(size)]
    # Java hash maps of this size iterate over these names in order.
    letters = "abcdefghijkl" if size <= 12 else "abcdefghijklmnopqrstuvwx"
    members = ids if hashed else sorted(chance.sample(letters, size))
    everything = (*partitions, "nowhere")
    equal = chance.random() < 0.5
    same = tuple(chance.sample(everything, chance.randint(1, len(everything))))

    def subscription(owned: frozenset[TopicPartition], generation: int) -> Subscription:
        topics = tuple(chance.sample(everything, chance.randint(1, len(everything))))
        return Subscription(
            same if equal else topics,
            owned,
            generation,
            f"i{chance.randint(0, 10**6)}" if chance.random() < 0.3 else None,
        )

    subscriptions = {member: subscription(frozenset(), -1) for member in members}
    if "sticky" in name and chance.random() < 0.9:
        if chance.random() < 0.6:
            there = dict(list(subscriptions.items())[: chance.randint(1, size)])
            before = assignor(name).assign(partitions, there)
            if chance.random() < 0.5:
                partitions = {t: n + chance.choice((0, 0, 3)) for t, n in partitions.items()}
            claims = [
                (frozenset(before.get(member, ())), 7 if member in there else -1)
                for member in members
            ]
        else:
            every = [TopicPartition(t, i) for t, n in partitions.items() for i in range(n)]
            some = [chance.sample(every, chance.randint(0, len(every))) for _ in members]
            claims = [(frozenset(each), chance.randint(5, 7)) for each in some]
        for member, (owned, generation) in zip(members, claims, strict=True):
            subscriptions[member] = subscription(owned, generation)
        for member in chance.sample(members, chance.randint(0, size - 1) // 4):
            subscriptions[member] = subscription(frozenset(), -1)
        for member in chance.sample(members, chance.randint(0, size - 1) // 4):
            del subscriptions[member]
    return Group(name, partitions, subscriptions)


def ask_kafka(groups: list[Group]) -> Iterator[_Assignment | str]:
    """Yield Kafka's assignment of each of ``groups``, or the exception's text."""
    libs = fetch_jars("libs", BROKER_ARTIFACTS)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    done = subprocess.run(
        [find_java(), quiet, "-cp", str(libs / "*"), str(_SOURCE)],
        input="\n".join(group.json() for group in groups),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            yield answer["error"]
        else:
            yield {m: [TopicPartition(*each) for each in got] for m, got in answer.items()}


def ours(group: Group) -> _Assignment:
    """Return our assignor's answer."""
    return assignor(group.assignor).assign(group.partitions, group.subscriptions)


def compare(group: Group, kafkas: _Assignment | str) -> str:
    """Return a verdict on our answer compared with ``kafkas``."""
    if isinstance(kafkas, str):
        return f"Kafka raises {kafkas.split(':')[0]}"
    answer = ours(group)
    if group.assignor == "range":
        # Kafka's lists have topics in the order of its hash map.
        kafkas = {member: sorted(each) for member, each in kafkas.items()}
    if answer == kafkas:
        return "same"
    return compare_freely(group, answer, kafkas) if group.assignor == "sticky" else "DIFFERENT"


def compare_freely(group: Group, answer: _Assignment, kafkas: _Assignment) -> str:
    """Return a verdict on two sticky assignments that are not equal."""
    each_sorted = [{m: sorted(got) for m, got in each.items()} for each in (answer, kafkas)]
    if each_sorted[0] == each_sorted[1]:
        return "same, lists in another order"
    if reason := excuse(group, kafkas):
        return reason
    sizes = [sorted(map(len, each.values())) for each in (answer, kafkas)]
    if sizes[0] != sizes[1]:
        return "DIFFERENT sizes"
    # Kafka moves partitions back in the order of a hash set.
    fewer = count_moves(group, kafkas) - count_moves(group, answer)
    moves = "same number of" if not fewer else f"{abs(fewer)} {'fewer' if fewer > 0 else 'more'}"
    return f"same sizes, {moves} moves"


def excuse(group: Group, kafkas: _Assignment) -> str:
    """Return the reason why Kafka's sticky assignment cannot be compared with ours, or ""."""
    if not is_valid(group, kafkas):
        return "Kafka's is not valid"
    if is_order_of_claims(group):
        return "Kafka's depends on the order of three claims"
    return ""


def compare_steps(group: Group, kafkas: _Assignment | str, target: _Assignment | str) -> str:
    """Return a verdict on our first step towards Kafka's target, compared with Kafka's step."""
    if isinstance(kafkas, str):
        return f"Kafka raises {kafkas.split(':')[0]}"
    assert not isinstance(target, str)
    step = cooperative_step(target, claims_in_force(group.subscriptions))
    if {m: set(each) for m, each in step.items()} == {m: set(each) for m, each in kafkas.items()}:
        return "same"
    if has_early_owner(group, kafkas):
        return "Kafka's has two owners of a partition"
    if group.has_equal_subscriptions and is_order_of_claims(group):
        return "Kafka's depends on the order of three claims"
    return "DIFFERENT"


def is_valid(group: Group, assignment: _Assignment) -> bool:
    """Return whether every partition is assigned once, to a subscriber."""
    given = Counter(each for got in assignment.values() for each in got)
    topics = {t for each in group.subscriptions.values() for t in each.topics}
    there = {TopicPartition(t, i) for t in topics for i in range(group.partitions.get(t, 0))}
    wanted = all(
        partition.topic in group.subscriptions[member].topics
        for member, got in assignment.items()
        for partition in got
    )
    return wanted and given.keys() == there and max(given.values(), default=1) == 1


def is_order_of_claims(group: Group) -> bool:
    """Return whether a member of a newer generation claims a partition that two others claim, too.

    The two others are of the same generation.
    """
    claims: dict[TopicPartition, list[int]] = {}
    for each in group.subscriptions.values():
        for partition in each.owned:
            claims.setdefault(partition, []).append(each.generation)
    return any(
        count > 1 and generation < max(generations)
        for generations in claims.values()
        for generation, count in Counter(generations).items()
    )


def has_early_owner(group: Group, assignment: _Assignment) -> bool:
    """Return whether a member was assigned a partition that another one still owns."""
    claims = claims_in_force(group.subscriptions)
    return any(
        partition in claimed
        for member, got in assignment.items()
        for partition in got
        for other, claimed in claims.items()
        if other != member
    )


def count_moves(group: Group, assignment: _Assignment) -> int:
    """Return the number of partitions that are not assigned to their owner."""
    owned = uncontested(claims_in_force(group.subscriptions))
    owner = {partition: member for member, each in owned.items() for partition in each}
    return sum(owner.get(p, m) != m for m, got in assignment.items() for p in got)


if __name__ == "__main__":
    main()
