"""The conditions that a seed chooses for a quorum: its members, proposers, and rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile


@dataclass(frozen=True, slots=True)
class QuorumProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        roots: number of members at the beginning.
        proposers: number of processes that put files.
        names: number of names for which they contend; each ends with a log of its own.
        readers: number of processes that list and look for files.
        allocators: number of processes that append to the metadata log.
        think_ms: mean time between two puts of a process.
        impatience: probability that a call does not wait for the answers of a minority.
        haste: share of the time for which a proposer waits for another before it takes the next
            ballot.
        has_operator: whether members fail, are wiped and are replaced.
        steps: number of steps before the faults end.
        operator: the only act of the operator, ``wipe`` or ``move``; empty for all acts.
    """

    faults: Profile
    roots: int
    proposers: int
    names: int
    readers: int
    allocators: int
    think_ms: float
    impatience: float
    haste: float
    has_operator: bool
    steps: int
    operator: str = ""

    def __str__(self) -> str:
        own = (
            f"roots={self.roots} proposers={self.proposers} names={self.names} "
            f"readers={self.readers} allocators={self.allocators} think_ms={self.think_ms:g} "
            f"impatience={self.impatience:g} haste={self.haste:g} "
            f"has_operator={self.has_operator} steps={self.steps}"
        )
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer"),
            *("late_copy", "torn_listing", "resent"),
        )
        return own + "".join(f" {name}={getattr(self.faults, name):g}" for name in names)


def draw_quorum_profile(random: Random) -> QuorumProfile:
    """Draw the conditions of a simulation."""
    faults = replace(
        draw_profile(random),
        latency_ms=random.choice((1.0, 4.0)),
        pause=random.choice((0.0, 0.02, 0.1)),
        failed=random.choice((0.0, 0.02, 0.1)),
        lost_request=random.choice((0.0, 0.02, 0.1)),
        lost_answer=random.choice((0.0, 0.02, 0.1)),
        range_bytes=0,
        torn_listing=0.0,
        slow_listing=0.0,
    )
    mood = random.random()
    if mood < 0.4:  # a duel: nothing but proposers of the same name, without mercy
        return QuorumProfile(
            faults=replace(faults, pause=0.1, crash=0.0, latency_ms=4.0),
            roots=3,
            proposers=3,
            names=1,
            readers=0,
            allocators=0,
            think_ms=1.0,
            impatience=random.choice((0.0, 0.1, 0.3)),
            haste=0.0,
            has_operator=False,
            steps=1500,
        )
    if mood < 0.6:  # much is lost, and much is read
        return QuorumProfile(
            faults=replace(faults, failed=0.2, lost_request=0.1, pause=0.02, latency_ms=4.0),
            roots=3,
            proposers=2,
            names=1,
            readers=2,
            allocators=0,
            think_ms=4.0,
            impatience=0.3,
            haste=0.0,
            has_operator=False,
            steps=1500,
        )
    if mood < 0.75:  # roots are wiped, after others were down
        return QuorumProfile(
            faults=replace(faults.without_faults(), latency_ms=1.0),
            roots=3,
            proposers=2,
            names=1,
            readers=2,
            allocators=0,
            think_ms=5.0,
            impatience=0.5,
            haste=1.0,
            has_operator=True,
            steps=3000,
            operator="wipe",
        )
    if mood < 0.85:  # members are replaced, while clients have old lists
        return QuorumProfile(
            faults=replace(faults.without_faults(), latency_ms=1.0),
            roots=3,
            proposers=2,
            names=1,
            readers=1,
            allocators=0,
            think_ms=100.0,
            impatience=0.3,
            haste=1.0,
            has_operator=True,
            steps=6000,
            operator="move",
        )
    return QuorumProfile(
        faults=faults,
        roots=random.choice((3, 3, 3, 5)),
        proposers=random.choice((2, 2, 3, 4)),
        names=random.choice((1, 1, 2)),
        readers=random.choice((0, 1, 1)),
        allocators=random.choice((0, 0, 2)),
        think_ms=DELETE_DELAY_MS * random.choice((0.001, 0.005, 0.05)),
        impatience=random.choice((0.0, 0.1, 0.5)),
        haste=random.choice((0.0, 0.05, 1.0)),
        has_operator=random.choice((False, True, True, True)),
        steps=random.choice((1500, 3000, 5000)),
    )
