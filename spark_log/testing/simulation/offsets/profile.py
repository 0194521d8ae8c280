"""What a seed chooses for a simulated offsets table: who commits, and which faults how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS, Profile, draw_profile

RETENTION_MS = 4 * DELETE_DELAY_MS
"""``offsets.retention.minutes``."""


@dataclass(frozen=True, slots=True)
class OffsetsProfile:
    """The conditions of one simulation.

    Attributes:
        faults: of the storage and of processes.
        committers: processes that commit.
        groups: that they commit for, each for any of them.
        think_ms: mean time from one commit of a process to its next.
        idle: how likely a process then does nothing for some delays.
        fence: how likely a commit begins a generation instead.
        versions_per_maintenance, files_per_tier, checkpoint_interval: as the constants are named.
        is_listed: one lists the log instead of looking for names, as on an object store.
        vandals: programs that clean up the log by a clock that is days ahead.
        wrong_clocks: how many processes have a wrong time of day.
        steps: how many steps are taken before the faults end.
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
    wrong_clocks: float
    steps: int

    def __str__(self) -> str:
        own = (
            f"committers={self.committers} groups={self.groups} think_ms={self.think_ms:g} "
            f"idle={self.idle:g} fence={self.fence:g} "
            f"versions_per_maintenance={self.versions_per_maintenance} "
            f"files_per_tier={self.files_per_tier} "
            f"checkpoint_interval={self.checkpoint_interval} is_listed={self.is_listed} "
            f"vandals={self.vandals} wrong_clocks={self.wrong_clocks:g} steps={self.steps}"
        )
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer"),
            *("late_copy", "torn_listing"),
        )
        return own + "".join(f" {name}={getattr(self.faults, name):g}" for name in names)


def draw_offsets_profile(random: Random) -> OffsetsProfile:
    """Return the conditions of a simulation."""
    faults = replace(
        draw_profile(random),
        latency_ms=random.choice((1.0, 4.0, 10.0)),
        range_bytes=0,
        resent=0.0,  # a store does not say "taken" of what it took itself (ConditionalPut)
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
    )
