"""What a seed chooses for a simulated consumer group: its members, and which faults how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS, Profile, draw_profile

SESSION_TIMEOUT_MS = 600
"""Less than processes stand still for at times, and than late copies of puts take."""


@dataclass(frozen=True, slots=True)
class GroupProfile:
    """The conditions of one simulation.

    Attributes:
        faults: of the storage and of processes.
        members: dynamic ones.
        statics: with an instance id of their own.
        twins: pairs that share an instance id.
        assignors: that every member knows, in this order.
        topics: at the beginning.
        poll_ms: mean time from poll to poll.
        commit: how likely each poll ends with a commit.
        slow_offsets: how likely a step of a call on the offsets table takes long.
        leave: how likely each poll is a member's last for a while.
        die: how likely a member that crashed never comes back.
        resubscribe: how likely each poll is followed by another subscription.
        topics_change_ms: mean time from one change of a topic to the next; 0: none.
        trim_every: records after which the group's log is trimmed.
        steps: how many steps are taken before the faults end.
        wrong_clocks: how many processes have a wrong time of day.
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

    def __str__(self) -> str:
        own = (
            f"members={self.members} statics={self.statics} twins={self.twins} "
            f"assignors={','.join(self.assignors)} poll_ms={self.poll_ms:g} commit={self.commit:g} "
            f"slow_offsets={self.slow_offsets:g} leave={self.leave:g} "
            f"die={self.die:g} topics_change_ms={self.topics_change_ms:g} "
            f"trim_every={self.trim_every} steps={self.steps} wrong_clocks={self.wrong_clocks:g}"
        )
        faults = self.faults
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer", "resent"),
            *("late_copy", "torn_listing"),
        )
        return own + "".join(f" {name}={getattr(faults, name):g}" for name in names)


def draw_group_profile(random: Random) -> GroupProfile:
    """Return the conditions of a simulation."""
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
    )
