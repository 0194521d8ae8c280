"""The conditions that a seed chooses for the offsets table: committers, and rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile

RETENTION_MS = 4 * DELETE_DELAY_MS
"""``offsets.retention.minutes``."""


@dataclass(frozen=True, slots=True)
class OffsetsProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        committers: number of processes that commit.
        groups: number of groups; each process commits for all of them.
        think_ms: mean time between two commits of a process.
        idle: probability that a process then pauses for several delete delays.
        fence: probability that a commit begins a generation instead.
        versions_per_maintenance, files_per_tier, checkpoint_interval: values of the constants of
            these names.
        is_listed: whether processes list the table's log, as on an object store, instead of probing
            for the next name.
        vandals: number of programs that clean up the log by a clock that is days ahead.
        vandal_rest_ms: mean time between two clean-ups of such a program.
        wrong_clocks: share of processes whose wall clock is wrong.
        steps: number of steps before the faults end.
    """

    faults: Profile
    committers: int
    groups: int
    think_ms: float
    idle: float
    fence: float
    versions_per_maintenance: int
    files_per_tier: int
    checkpoint_interval: int
    is_listed: bool
    vandals: int
    vandal_rest_ms: float
    wrong_clocks: float
    steps: int

    def __str__(self) -> str:
        own = (
            f"committers={self.committers} groups={self.groups} think_ms={self.think_ms:g} "
            f"idle={self.idle:g} fence={self.fence:g} "
            f"versions_per_maintenance={self.versions_per_maintenance} "
            f"files_per_tier={self.files_per_tier} "
            f"checkpoint_interval={self.checkpoint_interval} is_listed={self.is_listed} "
            f"vandals={self.vandals} vandal_rest_ms={self.vandal_rest_ms:g} "
            f"wrong_clocks={self.wrong_clocks:g} steps={self.steps}"
        )
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer"),
            *("late_copy", "torn_listing"),
        )
        return own + "".join(f" {name}={getattr(self.faults, name):g}" for name in names)


def draw_offsets_profile(random: Random) -> OffsetsProfile:
    """Draw the conditions of a simulation."""
    faults = replace(
        draw_profile(random),
        latency_ms=random.choice((1.0, 4.0, 10.0)),
        range_bytes=0,
        resent=0.0,  # ConditionalPut recognizes its own put
        slow_listing=0.0,
    )
    return OffsetsProfile(
        faults=faults,
        committers=random.choice((1, 2, 2, 3)),
        groups=random.choice((1, 2, 4)),
        think_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1, 0.5)),
        idle=random.choice((0.0, 0.05, 0.3)),
        fence=random.choice((0.0, 0.1)),
        versions_per_maintenance=random.choice((2, 4, 8)),
        files_per_tier=random.choice((2, 4)),
        checkpoint_interval=random.choice((3, 6)),
        is_listed=random.choice((False, True)),
        vandals=random.choice((0, 0, 1)),
        wrong_clocks=random.choice((0.0, 0.0, 0.5, 0.9)),
        steps=random.choice((400, 800, 1600)),
        # Often: a name is freed within the request of a put, which follows a look at the log.
        vandal_rest_ms=DELETE_DELAY_MS * random.choice((0.05, 0.2, 1.0)),
    )
