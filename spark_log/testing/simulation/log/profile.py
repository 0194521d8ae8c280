"""What a seed chooses: how many actors of which kind, and which faults how often.

Every seed leaves out about half of the faults and draws its own rates ("swarm testing"): with all
of them all the time, none would have the quiet around it in which it does harm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

DELETE_DELAY_MS = 1000
"""``file.delete.delay.ms`` in every simulation; all other times are relative to it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The conditions of one simulation. Chances are per step or per call.

    Attributes:
        latency_ms: mean time that a call on the store takes, there and back.
        pause: an actor stands still for up to four delete delays (a stopped process).
        crash: an actor ends, and comes up again with empty memory.
        failed: a call has no effect and says so.
        lost_request: a put has no effect (yet), and its answer is lost.
        lost_answer: a call has its effect, and its answer is lost.
        resent: the client sends a put twice by itself and is given the second one's answer.
        late_copy: a second copy of a put or a delete is delivered long after.
        torn_listing: a listing misses some of what appears, shows some of what vanishes meanwhile.
        slow_listing: a listing takes nearly as long as one may that counts.
        damage: how often the vandal damages a derived file.
        writers, conditional_writers, idempotent_writers: how many of each.
        twins: pairs that append the same for one producer.
        heirs: pairs of a producer that goes on in its epoch and one that has the next epoch.
        followers, seekers, mergers, retentions, cleaners, vandals: likewise. (Retentions delete
            records; what `retention.ms` and `retention.bytes` let go the cleaners delete.)
        think_ms: mean time that a writer takes between two appends.
        rest_ms: mean time that a merger, a cleaner and so on rests between two rounds.
        tail_segments: ``merge.tail.segments``.
        fan_in: how many segments a cleaner merges at least.
        retention_ms, retention_bytes: how long and how much is kept.
        snapshot_interval: ``snapshot.interval.segments``.
        expiration_ms: ``producer.id.expiration.ms``.
        range_bytes: read at once of a file where the store is not mapped; 0 for one that is.
        races_per_listing: how often an append loses until it lists what others appended.
        steps: how many steps are taken before the faults end.
    """

    latency_ms: float
    pause: float
    crash: float
    failed: float
    lost_request: float
    lost_answer: float
    resent: float
    late_copy: float
    torn_listing: float
    writers: int
    conditional_writers: int
    idempotent_writers: int
    twins: int
    heirs: int
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
    slow_listing: float = 0.0

    @property
    def has_retention(self) -> bool:
        """Whether records are deleted."""
        return bool(self.retentions) or max(self.retention_ms, self.retention_bytes) >= 0

    def calm(self) -> Profile:
        """The same without faults."""
        return replace(
            self,
            pause=0.0,
            crash=0.0,
            failed=0.0,
            lost_request=0.0,
            lost_answer=0.0,
            resent=0.0,
            late_copy=0.0,
            torn_listing=0.0,
            slow_listing=0.0,
        )

    def __str__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return " ".join(f"{name}={value:g}" for name, value in values if value)


def draw_profile(random: Random) -> Profile:
    """Return the conditions of a simulation."""

    def sometimes(*rates: float) -> float:
        return random.choice((0.0, random.choice(rates)))

    range_bytes = random.choice((0, 0, 0, 512, 4096))
    return Profile(
        # What a listing shows counts for half the delay. A look by ranges is many requests, one
        # after the other here: they are so fast that most looks come to their end.
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
        heirs=random.choice((0, 1)),
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
    )
