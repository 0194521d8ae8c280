"""The state that the actors of a simulated group share: storage, topics, the offsets table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from spark_log.config import TopicConfig
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group import GroupTopic
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.coordinator.offsets import CommittedOffset, LastCommit, Row
from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets
from spark_log.errors import IllegalGenerationError, StorageError, UnknownOutcomeError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util.suppressed import SuppressedErrors
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS, GroupProfile
from tests.simulation.groups.true_group import GROUP_ID, Place, TrueGroup
from tests.simulation.scheduler import Actor, Crash, Scheduler, SimulatedClock
from tests.simulation.store import SimulatedStore

LOG_CONFIG = TopicConfig.parse(
    {
        "file.delete.delay.ms": DELETE_DELAY_MS,
        "flush.on.append": False,
        "merge.tail.segments": 0,
        "snapshot.interval.segments": 5,
    }
)
_SLOW_MS = 3 * SESSION_TIMEOUT_MS


@dataclass(slots=True)
class GroupWorld:
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        store: the store that actors use; ``store.faults`` has the rates of faults.
        truth: the model that results are checked against.
        profile: the conditions.
        offsets: the offsets table.
        log_class, coordinator_class, commits_class, transactions_class: the classes under test.
        is_ending: faults have ended, and actors begin no new work.
        is_over: all members end.
        suppressed: counts failures that members survive.
    """

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    truth: TrueGroup
    profile: GroupProfile
    offsets: SimulatedOffsets
    log_class: type[GroupLog]
    coordinator_class: type[GroupCoordinator]
    commits_class: type[MemberCommits[int]]
    transactions_class: type[TransactionalOffsets]
    is_ending: bool = False
    is_over: bool = False
    ids: count[int] = field(default_factory=count)
    producer_ids: count[int] = field(default_factory=count)
    suppressed: SuppressedErrors = field(default_factory=SuppressedErrors)

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.faults.without_faults()
        self.is_ending = True
        self.offsets.slow = 0.0

    def open_coordinator(self) -> GroupCoordinator:
        """Return a new handle, as a new process has it."""
        log = self._log_class()

        class Coordinator(self.coordinator_class):  # type: ignore[misc, name-defined]
            log_class = log

        coordinator: GroupCoordinator = Coordinator(
            self,
            GROUP_ID,
            heartbeat_interval_ms=60,
            log_config=LOG_CONFIG,
            new_id=lambda: f"{next(self.ids):03d}",
            random=self.scheduler.random,
        )
        return coordinator

    def open_log(self, group_id: str) -> GroupLog:
        """Return a new handle of the group's log."""
        return self._log_class()(self.store, group_id, self.clock, LOG_CONFIG)

    def _log_class(self) -> type[GroupLog]:
        profile, log_class = self.profile, self.log_class

        class Log(log_class):  # type: ignore[misc, valid-type]
            trim_every = profile.trim_every

        return Log

    def image(self) -> MetadataImage:
        """Return the metadata of some moment during the call."""
        is_early = self.scheduler.random.random() < 0.5
        image = self._image() if is_early else None
        self.rest(self.store.faults.latency_ms)
        return image or self._image()

    def _image(self) -> MetadataImage:
        return metadata_image(
            self.truth.topics,
            {
                "group.min.session.timeout.ms": 0,
                "group.initial.rebalance.delay.ms": self.profile.join_delay_ms,
            },
        )

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))


def metadata_image(topics: Mapping[str, GroupTopic], configs: Mapping[str, int]) -> MetadataImage:
    """Return the metadata of topics, and of the cluster's configs."""
    return _metadata_image(tuple(sorted(topics.items())), tuple(sorted(configs.items())))


@lru_cache(256)
def _metadata_image(
    topics: tuple[tuple[str, GroupTopic], ...], configs: tuple[tuple[str, int], ...]
) -> MetadataImage:
    image = MetadataImage()
    for name, value in configs:
        image.replay(
            ConfigRecord(resource_type="broker", resource_name="", name=name, value=str(value))
        )
    for name, topic in topics:
        image.replay(TopicRecord(name=name, topic_id=topic.topic_id))
        for number in range(topic.partitions):
            image.replay(PartitionRecord(topic_id=topic.topic_id, partition_id=number))
    return image


class SimulatedOffsets:
    """A simulated offsets table, whose commits are serialized as in Delta.

    A commit is a put-if-absent of the version after the one that it read. If another commit of the
    same group came first, it fails instead of being rebased.

    Attributes:
        slow: probability that a step of a call takes long.
        lost_fences: probability that the request for a fence does not arrive, beside other faults.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        truth: TrueGroup,
        store: SimulatedStore,
        slow: float,
        lost_fences: float = 0.0,
    ) -> None:
        self.slow = slow
        self.lost_fences = lost_fences
        self.scheduler = scheduler
        self.truth = truth
        self.store = store
        self.version = 0
        self.fences = [0]
        self._newest: dict[Place, CommittedOffset] = {}
        self._read: dict[Actor | None, dict[Place, int]] = {}

    def fence(self, group: str, generation: int) -> None:
        """Begin a generation: commits of older ones fail from then on."""
        if self.lost_fences and self.scheduler.random.random() < self.lost_fences:
            self._pass_time()
            raise UnknownOutcomeError("offsets: no answer")
        self._commit(generation, lambda: self.truth.on_fenced(generation), is_done=True)

    def fetch(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets."""
        self._pass_time()
        self._fail("fetch")
        topics = {topic.topic_id for topic in self.truth.topics.values()}
        found = {
            partition: offset
            for (topic_id, partition), offset in self.truth.positions.items()
            if topic_id in topics
        }
        self._pass_time()
        return found

    def fetch_fenced(
        self, group: str, topic_ids: Mapping[str, str]
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets as this process read them when it raised the fence."""
        return {
            partition: offset
            for (topic_id, partition), offset in self._read[self.scheduler.current].items()
            if topic_ids.get(partition.topic) == topic_id
        }

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int,
        member_id: str,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Commit offsets in a generation."""
        rows: dict[Place, int] = {
            (topic_ids[named.topic], named): position.offset for named, position in offsets.items()
        }

        def take_effect() -> None:
            self.truth.on_committed(generation, member_id, rows)
            self._note_newest(rows, generation, member_id)

        self._commit(generation, take_effect)
        self.truth.check_acknowledged(rows)

    def last_commit(self, group: str) -> LastCommit:
        """Return the fence, and the newest version in place of its timestamp."""
        self._pass_time()
        self._fail("last commit")
        found = LastCommit(self.fences[-1], self.version)
        self._pass_time()
        return found

    def roll_forward(
        self,
        group: str,
        rows: Sequence[Row],
        is_superseded: Callable[[CommittedOffset], bool],
        *,
        generation: int,
        member_id: str,
        decided_ms: float,
    ) -> None:
        """Commit the offsets of a committed transaction; those that were committed are left out."""

        def take_effect() -> None:
            due: dict[Place, int] = {}
            for row in rows:
                named = TopicPartition(row.key.topic, row.key.partition)
                newest = self._newest.get((row.key.topic_id, named))
                if newest is None or not is_superseded(newest):
                    due[row.key.topic_id, named] = row.offset
            self.truth.on_rolled_forward(generation, member_id, due)
            self._note_newest(due, generation, member_id)

        self._commit(generation, take_effect, is_fenced=False)

    def _note_newest(self, rows: Mapping[Place, int], generation: int, member_id: str) -> None:
        for place, offset in rows.items():
            self._newest[place] = CommittedOffset(
                offset, "", -1, place[0], generation, member_id, self.version
            )

    def _commit(
        self,
        generation: int,
        effect: Callable[[], None],
        is_done: bool = False,
        *,
        is_fenced: bool = True,
    ) -> None:
        chance, faults = self.scheduler.random.random, self.store.faults
        while True:
            self._pass_time()
            self._fail("commit")
            version, fence = self.version, self.fences[-1]
            self._read[self.scheduler.current] = dict(self.truth.positions)
            if is_fenced and self._is_fenced(generation, fence):
                raise IllegalGenerationError(
                    f"generation {fence} has begun", generation=generation, current=fence
                )
            if is_done and fence == generation:
                return

            def put(version: int = version) -> bool:
                if not self._may_follow(version):
                    return False
                self.version += 1
                self.fences.append(max(generation, self.fences[-1]))
                effect()
                self.scheduler.note(f"offsets version {self.version}: generation {generation}")
                return True

            try:
                self._pass_time()
            except Crash:
                if chance() < 0.5:
                    self._deliver_late(put)
                raise
            if chance() < faults.lost_request:
                if chance() < 0.5:
                    self._deliver_late(put)
                self._pass_time()
                raise UnknownOutcomeError("offsets: no answer")
            is_put = put()
            is_lost = chance() < faults.lost_answer
            self._pass_time()
            if is_lost:
                raise UnknownOutcomeError("offsets: no answer")
            if is_put:
                return

    def _is_fenced(self, generation: int, fence: int) -> bool:
        return generation < fence

    def _may_follow(self, version: int) -> bool:
        return version == self.version

    def _deliver_late(self, put: Callable[[], bool]) -> None:
        delay_ms = self.scheduler.random.choice((0.02, 0.2, 1, 2, 4)) * DELETE_DELAY_MS
        self.scheduler.after(delay_ms * self.scheduler.random.random(), put)

    def _fail(self, what: str) -> None:
        if self.scheduler.random.random() < self.store.faults.failed:
            raise StorageError(f"offsets: {what} fails")

    def _pass_time(self) -> None:
        self.store.pass_time()
        random = self.scheduler.random
        if random.random() < self.slow:
            self.scheduler.pass_time(_SLOW_MS * random.random())
