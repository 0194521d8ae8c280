"""Everything that the actors of one simulation share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_log.config import TopicConfig
from spark_log.log import PartitionLog
from spark_log.log.partition_directory import PartitionDirectory
from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS, Profile
from spark_log.testing.simulation.log.true_log import DIRECTORY, TOPIC_ID, TrueLog
from spark_log.testing.simulation.scheduler import Scheduler
from spark_log.testing.simulation.store import SimulatedStore
from spark_log.testing.simulation.wall_clocks import WallClocks


@dataclass(slots=True)
class World:
    """The storage, the time, the truth, and the conditions of one simulation.

    Attributes:
        scheduler: whose turn it is.
        clock: what actors read the time from; the storage has one of its own.
        store: what actors use.
        true_log: what they are held against.
        profile: its conditions.
        log_class: the log under test, or one with a rule left out.
        is_ending: faults have ended, and no new work is begun.
        producer_ids: the next producer id.
    """

    scheduler: Scheduler
    clock: WallClocks
    store: SimulatedStore
    true_log: TrueLog
    profile: Profile
    log_class: type[PartitionLog]
    is_ending: bool = False
    producer_ids: int = 0
    config: TopicConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = TopicConfig.parse(
            {
                "file.delete.delay.ms": DELETE_DELAY_MS,
                "flush.on.append": False,
                "index.interval.bytes": 0,
                "merge.tail.segments": self.profile.tail_segments,
                "retention.bytes": self.profile.retention_bytes,
                "retention.ms": self.profile.retention_ms,
                "producer.id.expiration.ms": self.profile.expiration_ms,
                "snapshot.interval.segments": self.profile.snapshot_interval,
                # Whoever's clock is wrong may append all the same.
                "message.timestamp.before.max.ms": 2**63 - 1,
                "message.timestamp.after.max.ms": 2**63 - 1,
            }
        )

    def open_log(self) -> PartitionLog:
        """Return a handle that remembers nothing."""
        return self.log_class(
            self.store,
            DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            config=self.config,
            clock=self.clock,
        )

    def directory(self) -> PartitionDirectory:
        """Return the partition's directory, for those who rewrite."""
        return PartitionDirectory(
            self.store,
            DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            clock=self.clock,
            valid_ms=DELETE_DELAY_MS / 2,
        )

    def rest(self, mean_ms: float) -> None:
        """Let about so much time pass."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def next_producer_id(self) -> int:
        """Return a producer id that nobody had."""
        self.producer_ids += 1
        return self.producer_ids


Run = Callable[[World], None]
"""What an actor does, from coming up to its end."""
