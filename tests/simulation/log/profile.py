"""The conditions that a seed chooses: the rates of faults, and the number of actors of each kind.

Every seed leaves out about half of the faults and draws its own rates ("swarm testing"): with all
faults all the time, some bugs could not show, because other faults end the situation first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS, Faults

LONE_CHANCE = 0.3
"""Probability that one writer appends alone, in a simulation of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Faults):
    """The conditions of one simulation: its faults (`Faults`), its actors and its configs.

    Attributes:
        writers, conditional_writers, idempotent_writers: numbers of actors.
        twins: number of pairs of writers that append the same records for one producer.
        epoch_pairs: number of pairs of writers of one producer id, the second with a newer epoch.
        followers, seekers, mergers, retentions, cleaners, vandals: numbers of actors. (A retention
            deletes records at any offset; cleaners apply `retention.ms` and `retention.bytes`.)
        think_ms: mean time between two appends of a writer.
        rest_ms: mean time between two rounds of a merger, a cleaner and other maintenance.
        tail_segments: ``merge.tail.segments``.
        fan_in: minimum number of segments that a cleaner merges.
        retention_ms, retention_bytes: the topic's retention; -1: unlimited.
        snapshot_interval: ``snapshot.interval.segments``.
        expiration_ms: ``producer.id.expiration.ms``.
        range_bytes: size of a range of a file that is not memory-mapped; 0: files are mapped.
        races_per_listing: number of races that an append loses before it lists the log.
        steps: number of steps before the faults end.
        merges_beside: whether appenders merge the log's end beside their appends.
        burst: number of appends that a writer makes without a pause. If there are several, each has
            one Arrow batch.
    """

    writers: int
    conditional_writers: int
    idempotent_writers: int
    twins: int
    epoch_pairs: int
    followers: int
    seekers: int
    mergers: int
    retentions: int
    cleaners: int
    vandals: int
    think_ms: float
    rest_ms: float
    tail_segments: int
    fan_in: int
    retention_ms: int
    retention_bytes: int
    snapshot_interval: int
    expiration_ms: int
    range_bytes: int
    races_per_listing: int
    steps: int
    merges_beside: bool = False
    burst: int = 1

    @property
    def has_retention(self) -> bool:
        """Whether any actor or config deletes records."""
        return bool(self.retentions) or max(self.retention_ms, self.retention_bytes) >= 0


def draw_profile(random: Random) -> Profile:
    """Draw the conditions of a simulation."""

    def sometimes(*rates: float) -> float:
        return random.choice((0.0, random.choice(rates)))

    range_bytes = random.choice((0, 0, 0, 512, 4096))
    return Profile(
        # A listing may be used for half the delay. Reading in ranges takes many requests, here
        # one after another: they are fast enough that most reads end within that time.
        latency_ms=DELETE_DELAY_MS / random.choice((100, 200) if range_bytes else (10, 40, 200)),
        pause=sometimes(0.02, 0.05, 0.1),
        crash=sometimes(0.005, 0.02),
        failed=sometimes(0.02, 0.1),
        lost_request=sometimes(0.05, 0.2),
        lost_answer=sometimes(0.05, 0.2),
        resent=sometimes(0.05, 0.2),
        late_copy=sometimes(0.05, 0.3),
        torn_listing=sometimes(0.3, 1.0),
        writers=random.choice((0, 1, 1, 2)),
        conditional_writers=random.choice((0, 0, 1, 2)),
        idempotent_writers=random.choice((1, 1, 2)),
        twins=random.choice((0, 0, 1)),
        epoch_pairs=random.choice((0, 1)),
        followers=random.choice((1, 1, 2)),
        seekers=random.choice((0, 1)),
        mergers=random.choice((0, 1, 1, 2)),
        retentions=random.choice((0, 0, 1, 2)),
        cleaners=random.choice((1, 1, 2)),
        vandals=random.choice((0, 0, 1)),
        think_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1, 0.5, 2)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.1, 0.3, 1.0)),
        tail_segments=random.choice((0, 2, 3, 8)),
        fan_in=random.choice((2, 3, 8)),
        retention_ms=random.choice((-1, -1, -1, 4 * DELETE_DELAY_MS, 20 * DELETE_DELAY_MS)),
        retention_bytes=random.choice((-1, -1, -1, 10_000, 40_000)),
        snapshot_interval=random.choice((2, 5, 128)),
        expiration_ms=random.choice((1000, 1000, 2, 1)) * DELETE_DELAY_MS,
        range_bytes=range_bytes,
        races_per_listing=random.choice((1, 2, 8)),
        steps=random.choice((100, 200, 300)),
        merges_beside=random.choice((False, True)),
    )


def draw_log_profile(random: Random) -> Profile:
    """Draw the conditions of a simulation of a log; in some of them one writer appends alone.

    An appender merges from memory only segments of one small Arrow batch that it has put one after
    the other, without a listing in between. Several writers hardly ever leave it that many.
    """
    drawn = draw_profile(random)
    if random.random() >= LONE_CHANCE:
        return drawn
    return replace(
        drawn,
        latency_ms=DELETE_DELAY_MS / random.choice((40, 200, 1000)),
        writers=0,
        conditional_writers=0,
        idempotent_writers=random.choice((1, 2)),
        twins=0,
        epoch_pairs=0,
        tail_segments=random.choice((2, 3)),
        range_bytes=0,
        burst=random.choice((8, 32)),
    )
