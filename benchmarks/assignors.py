"""Measures how long the assignors of consumer groups take: 10,000 partitions, 1,000 members.

    python -m benchmarks.assignors

No peer; each figure has a goal. The cases: ten or a thousand topics, subscriptions that are equal
or each to a random half of the topics. The first assignment is measured, and the one after a tenth
of the members left and as many joined, some with claims of an older generation.
"""

import argparse
import random
from dataclasses import replace
from functools import partial

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.timing import timed
from spark_log.coordinator.assignors import Subscription, assignor, cooperative_step

GOALS_S = {"range": 1.0, "roundrobin": 1.0, "sticky": 5.0}


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("assignors", __doc__)
    options.add_argument(
        "--partitions", type=int, default=10_000, help="of all topics together (10000)"
    )
    options.add_argument("--members", type=int, default=1_000, help="(1000)")
    options.add_argument("--topics", type=int, nargs="+", default=[10, 1_000], help="(10 1000)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure each assignor on each kind of group, first and second assignment."""
    figures = []
    for topics in options.topics:
        for equal in (True, False):
            figures += _figures(options, topics, equal=equal)
    notes = {"partitions": options.partitions, "members": options.members}
    return Report("assignors", figures, notes)


def _figures(options: argparse.Namespace, topics: int, *, equal: bool) -> list[Figure]:
    chance = random.Random(0)
    names = [f"topic{i:04d}" for i in range(topics)]
    partitions = dict.fromkeys(names, options.partitions // topics)
    every = tuple(names)

    def subscription() -> Subscription:
        half = tuple(chance.sample(names, (topics + 1) // 2))
        return Subscription(every if equal else half)

    first = {f"member{i:04d}": subscription() for i in range(options.members)}
    kind = f"{topics} topics, {'equal' if equal else 'different'}"
    figures = []
    for name, at_most in GOALS_S.items():
        assign = partial(assignor(name).assign, partitions)
        took_s = timed(partial(assign, first))
        figures.append(Figure(f"{name}, {kind}, first", took_s, "s", at_most=at_most))
    before = assign(first)
    second = {
        member: replace(it, owned=frozenset(before[member]), generation=2 - (i % 50 == 0))
        for i, (member, it) in enumerate(first.items())
        if i % 10
    } | {f"newcomer{i:04d}": subscription() for i in range(options.members // 10)}
    took_s = timed(lambda: assign(second))
    figures.append(Figure(f"sticky, {kind}, second", took_s, "s", at_most=GOALS_S["sticky"]))
    target = assign(second)
    owned = {member: it.owned for member, it in second.items()}
    took_s = timed(lambda: cooperative_step(target, owned))
    figures.append(Figure(f"cooperative step, {kind}", took_s, "s"))
    return figures


if __name__ == "__main__":
    main()
