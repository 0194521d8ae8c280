"""The conditions that a seed chooses: the number of actors of each kind, and the rates of faults.

Every seed leaves out about half of the faults and draws its own rates ("swarm testing"): with all
faults all the time, some bugs could not show, because other faults end the situation first.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

DELETE_DELAY_MS = 1000
"""``file.delete.delay.ms`` of every simulation; all other times are relative to it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The conditions of one simulation. Fault rates are probabilities per step or per call.

    Attributes:
        latency_ms: mean time of a call of the store, there and back.
        pause: rate of pauses of up to four delete delays (a stopped process).
        crash: rate of crashes; the actor then starts again with empty memory.
        failed: rate of calls that have no effect and raise an error.
        lost_request: rate of puts that have no effect (yet), and whose answer is lost.
        lost_answer: rate of calls that take effect, and whose answer is lost.
        resent: rate of puts that the client sends twice, and answers with the second result.
        late_copy: rate of puts and deletes of which a second copy is delivered much later.
        torn_listing: rate of listings that miss new files, and show files deleted meanwhile.
        slow_listing: rate of listings that take nearly as long as a usable listing may.
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
    slow_listing: float = 0.0
    merges_beside: bool = False

    @property
    def has_retention(self) -> bool:
        """Whether any actor or config deletes records."""
        return bool(self.retentions) or max(self.retention_ms, self.retention_bytes) >= 0

    def without_faults(self) -> Profile:
        """Return this profile without faults."""
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
