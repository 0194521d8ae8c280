"""The state that the actors of one simulation share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_log.config import TopicConfig
from spark_log.log import LocalLog, MergeExecutor
from spark_log.log.directory.partition_directory import PartitionDirectory
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.profile import Profile
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID, TrueLog
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedStore
from tests.simulation.wall_clocks import WallClocks


@dataclass(slots=True)
class World:
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock; the storage has its own.
        store: the store that actors use.
        true_log: the model that results are checked against.
        profile: the conditions.
        log_class: the log under test, or one without a safety rule.
        is_ending: faults have ended, and actors begin no new work.
        producer_ids: number of producer ids that were assigned.
        config: the topic's config.
    """

    scheduler: Scheduler
    clock: WallClocks
    store: SimulatedStore
    true_log: TrueLog
    profile: Profile
    log_class: type[LocalLog]
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
                # An actor whose clock is wrong may append all the same.
                "message.timestamp.before.max.ms": 2**63 - 1,
                "message.timestamp.after.max.ms": 2**63 - 1,
            }
        )

    def open_log(self) -> LocalLog:
        """Return a new handle of the log, as a new process has it."""
        return self.log_class(
            self.store,
            DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            config=self.config,
            clock=self.clock,
            merge_executor=MergeExecutor(self._run_beside) if self.profile.merges_beside else None,
        )

    def _run_beside(self, merge: Callable[[], None]) -> bool:
        """Run a merge as an actor of its own, on the clock of the appender."""
        appender = self.scheduler.current
        assert appender is not None
        waiting = [merge]

        def run() -> None:
            if waiting:  # after a crash it is not run again
                waiting.pop()()

        name = f"{appender.name}'s merge"
        self.scheduler.spawn(name, run, is_mortal=True, clock_rate=appender.clock_rate)
        return True

    def directory(
        self, directory_class: type[PartitionDirectory] = PartitionDirectory
    ) -> PartitionDirectory:
        """Return a new handle of the partition's directory, for mergers."""
        return directory_class(
            self.store,
            DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            clock=self.clock,
            valid_ms=DELETE_DELAY_MS / 2,
        )

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.without_faults()
        self.is_ending = True

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def next_producer_id(self) -> int:
        """Assign a new producer id."""
        self.producer_ids += 1
        return self.producer_ids


Run = Callable[[World], None]
"""The work of an actor, from its start to its end."""
