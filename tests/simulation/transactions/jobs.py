"""Actors with many participants: a driver whose tasks are run, and tried again, by executors."""

from __future__ import annotations

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    StorageError,
    TransactionError,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionCoordinator
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.transactions.owners import Writes, abort, commit
from tests.simulation.transactions.profile import TASK_RETRY_MS
from tests.simulation.transactions.world import (
    JOB,
    OpenLogs,
    TaskOffer,
    TaskResult,
    TransactionsWorld,
    open_coordinator,
)

_AGAIN_CHANCE = 0.3
"""Probability that a task is given to a second executor at once (speculation)."""

_LOOKS_CHANCE = 0.3
"""Probability that a driver first looks whether the micro-batch is committed."""

_CANCELS_CHANCE = 0.8
"""Probability that a driver cancels what waits for an executor, before it has a batch run."""

_FAILS_CHANCE = 0.05
"""Probability that a micro-batch fails when its tasks have ended."""

_DIES_CHANCE = 0.3
"""Probability that a driver dies after a commit, before it has noted it in the checkpoint."""

_POLL_MS = 20.0
_MAX_POLLS = 200
"""Number of times that a driver polls for results before the micro-batch fails."""


class Driver:
    """Has the tasks of one micro-batch after the other run, and commits the attempts that count.

    After a crash, and after it was fenced, it begins with the micro-batch of the checkpoint, which
    may be committed already.
    """

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end."""
        world = self._world
        coordinator = open_coordinator(world.open_cluster(), JOB)
        while not world.is_ending:
            try:
                owner: ProducerIdAndEpoch | None = coordinator.initialize(world.profile.timeout_ms)
                world.scheduler.note(f"initialized: {owner}")
                while owner is not None and not world.is_ending:
                    owner = self._run_batch(coordinator, owner)
            except TransactionError as error:
                world.scheduler.note(f"is fenced: {type(error).__name__}")
                world.rest(DELETE_DELAY_MS)
            except StorageError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _run_batch(
        self, coordinator: TransactionCoordinator, owner: ProducerIdAndEpoch
    ) -> ProducerIdAndEpoch | None:
        """Run a micro-batch; return the owner of the next one, None after a failure."""
        world, random, job = self._world, self._world.scheduler.random, self._world.job
        batch_id = job.batch_id
        if random.random() < _LOOKS_CHANCE and coordinator.refresh().batch_id >= batch_id:
            world.scheduler.note(f"batch {batch_id} is committed already")
            self._on_committed(batch_id)
            return owner
        if random.random() < _CANCELS_CHANCE:
            job.offers.clear()
        tasks = random.choice((0, 1, 2, 2, 3))
        results = self._run_tasks(owner, batch_id, tasks)
        if results is None:
            return None
        if random.random() < world.profile.leave:
            world.scheduler.note("stands still before the commit")
            world.rest(2 * world.profile.timeout_ms)
        if random.random() < _FAILS_CHANCE:
            return abort(world, coordinator, owner)
        counting = [result.participant for result in results]
        try:
            following = commit(world, coordinator, owner, counting, batch_id)
        except InvalidTxnStateError:
            if (JOB, batch_id) not in world.truth.batches:
                raise
            following = abort(world, coordinator, owner)
        if random.random() < _DIES_CHANCE:
            world.scheduler.note("dies before its checkpoint")
            return None
        if (JOB, batch_id) in world.truth.batches:  # else others have aborted it
            self._on_committed(batch_id)
        return following

    def _on_committed(self, batch_id: int) -> None:
        """Note it in the checkpoint; an old driver may be late."""
        if (JOB, batch_id) not in self._world.truth.batches:
            raise AssertionError(f"batch {batch_id} is not committed")
        self._world.job.batch_id = max(self._world.job.batch_id, batch_id + 1)

    def _run_tasks(
        self, owner: ProducerIdAndEpoch, batch_id: int, tasks: int
    ) -> list[TaskResult] | None:
        """Return the result of the first attempt of each task; None if they fail."""
        world, random = self._world, self._world.scheduler.random
        for task in range(tasks):
            self._offer(owner, batch_id, task)
            if random.random() < _AGAIN_CHANCE:
                self._offer(owner, batch_id, task)
        offered_ms = [world.scheduler.now_ms] * tasks
        for _ in range(_MAX_POLLS):
            found: dict[int, TaskResult] = {}
            for result in world.job.results:
                if result.offer.owner == owner and result.offer.batch_id == batch_id:
                    found.setdefault(result.offer.task, result)
            if len(found) == tasks:
                return list(found.values())
            if world.is_ending:
                return None
            for task in range(tasks):
                if task not in found and world.scheduler.now_ms - offered_ms[task] > TASK_RETRY_MS:
                    offered_ms[task] = world.scheduler.now_ms
                    self._offer(owner, batch_id, task)
            world.rest(_POLL_MS)
        world.scheduler.note(f"batch {batch_id} fails")
        return None

    def _offer(self, owner: ProducerIdAndEpoch, batch_id: int, task: int) -> None:
        job = self._world.job
        job.offers.append(TaskOffer(owner, batch_id, task, next(job.attempts)))


class Executor:
    """Runs one task attempt after the other; one that stands still may write after the decision."""

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end."""
        world = self._world
        cluster = world.open_cluster()
        logs = OpenLogs(cluster, world.image)
        coordinator = open_coordinator(cluster, JOB)
        while not world.is_ending:
            if not world.job.offers:
                world.rest(_POLL_MS)
                continue
            offer = world.job.offers.pop(0)
            try:
                self._run_attempt(coordinator, logs, offer)
            except (TransactionError, InvalidProducerEpochError, StorageError) as error:
                world.scheduler.note(f"attempt {offer.attempt} fails: {type(error).__name__}")

    def _run_attempt(
        self, coordinator: TransactionCoordinator, logs: OpenLogs, offer: TaskOffer
    ) -> None:
        world, random = self._world, self._world.scheduler.random
        partitions = random.choices(world.partitions, k=random.choice((1, 1, 2)))
        participant = coordinator.join(offer.owner, partitions if random.random() < 0.5 else ())
        world.scheduler.note(f"attempt {offer.attempt} of {offer.owner}: {participant}")
        writes = Writes(world, coordinator, logs, participant)
        for partition in partitions:
            writes.write(partition, f"batch {offer.batch_id} task {offer.task}")
            world.rest(world.profile.think_ms)
        if random.random() < world.profile.leave:
            world.rest(2 * TASK_RETRY_MS)
            writes.write(random.choice(world.partitions), f"late batch {offer.batch_id}")
        world.job.results.append(TaskResult(offer, participant))
        world.scheduler.note(f"attempt {offer.attempt} is done")
