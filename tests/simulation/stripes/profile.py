"""The conditions that a seed chooses: rates of faults, and the number of actors of each kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS, Faults
from tests.simulation.log.profile import draw_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class StripesProfile(Faults):
    """The conditions of one simulation: its faults (`Faults`), its actors and its limits.

    Attributes:
        stripes: number of stripes.
        partitions: number of partitions.
        writers: number of processes, each with one or two threads that share puts.
        plain_writers: number of processes whose batches have no producer.
        twins: number of pairs of writers that append the same records for one producer.
        epoch_pairs: number of pairs of writers of one producer id, the second with a newer epoch.
        transactional: number of processes that append in transactions.
        finishers: number of processes that put the markers of others' transactions.
        readers, takers, cleaners, mergers: numbers of actors.
        think_ms: mean time between two appends of a writer.
        rest_ms: mean time between two rounds of maintenance.
        home_bytes: bytes of records with which a round of taking home stops.
        objects_per_listing: objects with which a reader looks for a newer home marker.
        objects_ahead: number of listed objects that are read at once.
        is_ranged: whether files are read in ranges.
        steps: number of steps before the faults end.
    """

    stripes: int
    partitions: int
    writers: int
    plain_writers: int
    twins: int
    epoch_pairs: int
    transactional: int
    finishers: int
    readers: int
    takers: int
    cleaners: int
    mergers: int
    think_ms: float
    rest_ms: float
    home_bytes: int
    objects_per_listing: int
    objects_ahead: int
    is_ranged: bool
    steps: int


def draw_stripes_profile(random: Random) -> StripesProfile:
    """Draw the conditions of a simulation."""
    drawn, stripes = draw_profile(random), random.choice((1, 1, 2))
    faults = {
        name: getattr(drawn, name)
        for name in (
            "pause",
            "crash",
            "failed",
            "lost_request",
            "lost_answer",
            "resent",
            "late_copy",
            "torn_listing",
        )
    }
    profile = StripesProfile(
        **faults,
        latency_ms=DELETE_DELAY_MS / random.choice((10, 40, 200)),
        slow_listing=random.choice((0.0, 0.0, 0.2)),
        stripes=stripes,
        partitions=stripes * random.choice((1, 2, 4)),
        writers=random.choice((0, 1, 1, 2)),
        plain_writers=random.choice((0, 1)),
        twins=random.choice((0, 0, 1)),
        epoch_pairs=random.choice((0, 0, 1)),
        transactional=random.choice((0, 1)),
        finishers=random.choice((0, 1)),
        readers=random.choice((1, 2)),
        takers=random.choice((1, 1, 2)),
        cleaners=random.choice((1, 1, 2)),
        mergers=random.choice((0, 1)),
        think_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1, 0.5, 2)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.1, 0.3, 1.0)),
        home_bytes=random.choice((1, 300, 2**20)),
        objects_per_listing=random.choice((2, 1000)),
        objects_ahead=random.choice((1, 3, 16)),
        is_ranged=random.choice((False, False, True)),
        steps=random.choice((200, 400, 800)),
    )
    if random.random() < 0.6:
        return profile
    # Writers stand still while others take home and free what they are about to put.
    return replace(
        profile,
        latency_ms=DELETE_DELAY_MS / random.choice((100, 200, 400)),
        pause=random.choice((0.03, 0.1)),
        steps=1000,
        writers=3,
        takers=2,
        cleaners=2,
        think_ms=DELETE_DELAY_MS * 0.1,
        rest_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1)),
    )
