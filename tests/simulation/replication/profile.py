"""The conditions that a seed chooses for a replicated partition, and the rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile


@dataclass(frozen=True, slots=True)
class ReplicationProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the faults of each broker's storage and of processes, and the number of cleaners.
        brokers: number of brokers, each with a replica.
        min_insync: ``min.insync.replicas``.
        writers: number of writers that are idempotent and wait for all in-sync replicas.
        leader_writers: number of idempotent writers that after some appends wait for the leader
            alone, and replicate now and then.
        plain_writers: number of writers that are not idempotent, some of which append at an
            expected offset.
        followers: number of readers that keep reading.
        scanners: number of readers that open the log again for each read.
        controllers: number of processes that bring replicas back.
        suspicion: probability that a controller takes a replica out of the in-sync replicas for
            no reason, in each round.
        fencing: probability that a controller fences a broker for no reason, in each round.
        outages: number of actors that make roots unavailable, slow, or lost.
        outage_ms: mean time between two outages of an actor, and of their duration.
        destroys: probability that a root that fails is lost, and replaced by an empty one.
        empties: whether a lost root, also that of the leader, looks empty, like a path on which no
            disk is mounted.
        retentions: number of actors that delete records.
        retention_ms: mean time between two deletions of one of them.
        think_ms: mean time between two appends of a writer.
        round_ms: mean time between two rounds of a controller.
        steps: number of steps before the faults end.
    """

    faults: Profile
    brokers: int
    min_insync: int
    writers: int
    leader_writers: int
    plain_writers: int
    followers: int
    scanners: int
    controllers: int
    suspicion: float
    fencing: float
    outages: int
    outage_ms: float
    destroys: float
    empties: bool
    retentions: int
    retention_ms: float
    think_ms: float
    round_ms: float
    steps: int

    def __str__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        shown = (f"{name}={value:g}" for name, value in values if name != "faults")
        return f"{' '.join(shown)} {self.faults}"


def draw_replication_profile(random: Random) -> ReplicationProfile:
    """Draw the conditions of a simulation."""
    drawn = draw_profile(random)
    faults = replace(
        drawn,
        # An append takes several steps on each replica: with the rates of a log few would end.
        latency_ms=random.choice((1.0, 4.0, 10.0)),
        pause=random.choice((0.0, 0.005, 0.02)),
        crash=random.choice((0.0, 0.002, 0.005)),
        failed=random.choice((0.0, 0.0, 0.005, 0.02)),
        lost_request=random.choice((0.0, 0.0, 0.02, 0.1)),
        lost_answer=random.choice((0.0, 0.0, 0.02, 0.1)),
        resent=random.choice((0.0, 0.0, 0.1)),
        late_copy=random.choice((0.0, 0.05, 0.3)),
        range_bytes=0,
        slow_listing=0.0,
        cleaners=random.choice((0, 0, 1)),
        expiration_ms=1000 * DELETE_DELAY_MS,
    )
    brokers = random.choice((2, 3, 3, 3, 4))
    fencing = random.choice((0.0, 0.0, 0.05))
    destroys = random.choice((0.0, 0.0, 0.3, 1.0))
    empties = destroys > 0 and random.random() < 0.3
    if empties:  # a replica then leaves only because its files are lost
        faults = replace(
            faults, pause=0.0, failed=0.0, lost_request=0.0, lost_answer=0.0, resent=0.0
        )
    return ReplicationProfile(
        faults=faults,
        brokers=brokers,
        min_insync=random.choice((1, 2)),
        writers=random.choice((1, 2, 2)),
        leader_writers=random.choice((0, 0, 1)),
        plain_writers=random.choice((0, 0, 1)),
        followers=random.choice((1, 1, 2)),
        scanners=random.choice((0, 1)),
        controllers=random.choice((1, 2, 2)),
        suspicion=0.0 if empties else random.choice((0.0, 0.05, 0.3)),
        fencing=0.0 if empties else fencing,
        outages=random.choice((0, 1, 1)) if not empties else 1,
        outage_ms=DELETE_DELAY_MS * random.choice((0.1, 0.5, 2.0)),
        destroys=destroys,
        empties=empties,
        retentions=random.choice((0, 0, 1)),
        retention_ms=DELETE_DELAY_MS * random.choice((0.1, 0.5)),
        think_ms=DELETE_DELAY_MS * random.choice((0.005, 0.02, 0.1)),
        round_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1, 0.4)),
        steps=random.choice((400, 800, 1600)),
    )
