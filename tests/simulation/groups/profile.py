"""The conditions that a seed chooses for a consumer group: members, and the rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile

SESSION_TIMEOUT_MS = 600
"""Shorter than some pauses of processes, and than the delay of some late copies of puts."""


@dataclass(frozen=True, slots=True)
class GroupProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        members: number of dynamic members.
        statics: number of static members.
        twins: number of pairs of members that share an instance id.
        assignors: the assignors that every member supports, in this order.
        topics: number of topics at the beginning.
        poll_ms: mean time between two polls.
        commit: probability that a poll ends with a commit.
        slow_offsets: probability that a step of a call of the offsets table takes long.
        leave: probability that a member leaves after a poll.
        die: probability that a crashed member never returns.
        resubscribe: probability that a poll is followed by a new subscription.
        topics_change_ms: mean time between two changes of topics; 0: no changes.
        trim_every: number of records after which the group's log is trimmed.
        steps: number of steps before the faults end.
        wrong_clocks: share of processes whose wall clock is wrong.
        transactions: share of the commits that transactions make.
        join_delay_ms: ``group.initial.rebalance.delay.ms``.
    """

    faults: Profile
    members: int
    statics: int
    twins: int
    assignors: tuple[str, ...]
    topics: int
    poll_ms: float
    commit: float
    slow_offsets: float
    leave: float
    die: float
    resubscribe: float
    topics_change_ms: float
    trim_every: int
    steps: int
    wrong_clocks: float = 0.0
    transactions: float = 0.0
    join_delay_ms: int = 0

    def __str__(self) -> str:
        own = (
            f"members={self.members} statics={self.statics} twins={self.twins} "
            f"assignors={','.join(self.assignors)} poll_ms={self.poll_ms:g} commit={self.commit:g} "
            f"slow_offsets={self.slow_offsets:g} leave={self.leave:g} "
            f"die={self.die:g} topics_change_ms={self.topics_change_ms:g} "
            f"trim_every={self.trim_every} steps={self.steps} wrong_clocks={self.wrong_clocks:g} "
            f"transactions={self.transactions:g} join_delay_ms={self.join_delay_ms}"
        )
        faults = self.faults
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer", "resent"),
            *("late_copy", "torn_listing"),
        )
        return own + "".join(f" {name}={getattr(faults, name):g}" for name in names)


def draw_group_profile(random: Random) -> GroupProfile:
    """Draw the conditions of a simulation."""
    faults = replace(
        draw_profile(random), latency_ms=random.choice((1.0, 4.0, 10.0)), range_bytes=0
    )
    return GroupProfile(
        faults=faults,
        members=random.choice((1, 2, 2, 3, 5)),
        statics=random.choice((0, 0, 1, 2)),
        twins=random.choice((0, 0, 1)),
        assignors=random.choice(
            (
                ("range",),
                ("roundrobin",),
                ("sticky",),
                ("cooperative-sticky",),
                ("range", "cooperative-sticky"),
            )
        ),
        topics=random.choice((1, 1, 2)),
        poll_ms=random.choice((10.0, 30.0, 100.0)),
        commit=random.choice((0.01, 0.05, 0.3)),
        slow_offsets=random.choice((0.0, 0.1, 0.3)),
        leave=random.choice((0.0, 0.01, 0.05)),
        die=random.choice((0.0, 0.3)),
        resubscribe=random.choice((0.0, 0.0, 0.05)),
        topics_change_ms=random.choice((0.0, 0.3, 2.0)) * DELETE_DELAY_MS,
        trim_every=random.choice((2, 6, 64)),
        steps=random.choice((300, 600, 1200)),
        wrong_clocks=random.choice((0.0, 0.0, 0.5, 0.9)),
        transactions=random.choice((0.0, 0.0, 0.5, 0.9)),
        join_delay_ms=random.choice((0, 0, 50, 2 * SESSION_TIMEOUT_MS)),
    )
