"""The conditions that a seed chooses for transactions: their writers, and the rates of faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile, draw_profile

TASK_RETRY_MS = DELETE_DELAY_MS / 2
"""After this time a driver has a task tried again, while the earlier attempt may still run."""


@dataclass(frozen=True, slots=True)
class TransactionsProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes, and the numbers of plain
            writers, mergers, cleaners, of those that delete records, and of vandals.
        partitions: number of partitions.
        is_compacted: whether the topic is compacted.
        producers: number of transactional ids with one producer.
        zombies: number of further processes with the transactional id of the first producer.
        drivers: number of processes that drive the one job.
        executors: number of processes that run its tasks.
        cleanings: number of processes that clean transactional ids.
        followers: number of readers besides one with ``read_committed`` for each partition.
        think_ms: mean time between two appends.
        poll_ms: mean time between two polls of a reader.
        leave: probability that a producer leaves its transaction open, and stops for some time.
        abort: probability that a transaction is aborted by its owner.
        timeout_ms: ``transaction.timeout.ms``.
        expiration_ms: ``transactional.id.expiration.ms``.
        last_epoch: the last epoch of a producer id in which records are written.
        trim_every: number of records after which a state log is trimmed.
        steps: number of steps before the faults end.
    """

    faults: Profile
    partitions: int
    is_compacted: bool
    producers: int
    zombies: int
    drivers: int
    executors: int
    cleanings: int
    followers: int
    think_ms: float
    poll_ms: float
    leave: float
    abort: float
    timeout_ms: int
    expiration_ms: int
    last_epoch: int
    trim_every: int
    steps: int

    def __str__(self) -> str:
        return (
            f"partitions={self.partitions} is_compacted={self.is_compacted} "
            f"producers={self.producers} zombies={self.zombies} "
            f"drivers={self.drivers} executors={self.executors} cleanings={self.cleanings} "
            f"followers={self.followers} "
            f"think_ms={self.think_ms:g} poll_ms={self.poll_ms:g} leave={self.leave:g} "
            f"abort={self.abort:g} timeout_ms={self.timeout_ms} "
            f"expiration_ms={self.expiration_ms} last_epoch={self.last_epoch} "
            f"trim_every={self.trim_every} steps={self.steps} {self.faults}"
        )


def draw_transactions_profile(random: Random) -> TransactionsProfile:
    """Draw the conditions of a simulation."""
    faults, is_compacted = draw_profile(random), random.random() < 0.3
    faults = replace(
        faults,
        # A transaction takes more steps than an append: with the rates of a log few would end.
        latency_ms=random.choice((1.0, 4.0, 10.0)),
        crash=random.choice((0.0, 0.002, 0.01)),
        failed=random.choice((0.0, 0.0, 0.01, 0.05)),
        lost_request=random.choice((0.0, 0.0, 0.03, 0.1)),
        lost_answer=random.choice((0.0, 0.0, 0.03, 0.1)),
        range_bytes=0,
        slow_listing=0.0,
        writers=random.choice((0, 0, 1)),
        mergers=random.choice((0, 0, 1)),
        cleaners=random.choice((1, 2)) if is_compacted else random.choice((0, 0, 1)),
        retentions=random.choice((0, 0, 0, 1)),
        vandals=random.choice((0, 0, 0, 1)),
        retention_ms=-1,
        retention_bytes=-1,
        expiration_ms=1000 * DELETE_DELAY_MS,
    )
    drivers = random.choice((0, 1, 1, 2))
    return TransactionsProfile(
        faults=faults,
        partitions=random.choice((1, 2, 2, 3)),
        is_compacted=is_compacted,
        producers=random.choice((1, 1, 2)) if drivers else random.choice((1, 2, 3)),
        zombies=random.choice((0, 1, 1, 2)),
        drivers=drivers,
        executors=random.choice((1, 2, 3)) if drivers else 0,
        cleanings=random.choice((0, 0, 1, 2)),
        followers=random.choice((0, 1)),
        think_ms=DELETE_DELAY_MS * random.choice((0.005, 0.02, 0.1)),
        poll_ms=DELETE_DELAY_MS * random.choice((0.05, 0.2, 0.5)),
        leave=random.choice((0.0, 0.05, 0.2)),
        abort=random.choice((0.0, 0.2)),
        timeout_ms=int(DELETE_DELAY_MS * random.choice((0.3, 1, 3))),
        expiration_ms=int(DELETE_DELAY_MS * random.choice((1000, 1, 4))),
        last_epoch=random.choice((32_766, 32_766, 2, 4)),
        trim_every=random.choice((4, 10, 64)),
        steps=random.choice((300, 600, 1500)),
    )
