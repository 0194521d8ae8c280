"""Actors that write as one producer: with a transactional id, as Kafka has it, and without."""

from __future__ import annotations

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    SparkLogError,
    StorageError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.transactions.world import OpenLogs, TransactionsWorld, open_coordinator

_TRIES = 4
"""Number of attempts of an append before its transaction is aborted."""

_FINISHED_CHANCE = 0.2
"""Probability that a producer finishes its last transaction's markers before it continues."""


class Writes:
    """The appends of one participant: its sequence numbers begin at 0 in each partition.

    Attributes:
        values: the values that were acknowledged.
    """

    def __init__(
        self,
        world: TransactionsWorld,
        coordinator: TransactionCoordinator,
        logs: OpenLogs,
        producer: ProducerIdAndEpoch,
    ) -> None:
        self._world = world
        self._coordinator = coordinator
        self._logs = logs
        self._producer = producer
        self._sequences: dict[TopicIdPartition, int] = {}
        self.values: list[bytes] = []

    def write(self, partition: TopicIdPartition, name: str) -> None:
        """Register a partition, and append a few records there; tried again after faults.

        Raises:
            TransactionError: the participant is fenced, or its transaction was aborted.
            InvalidProducerEpochError: it is fenced.
            StorageError: it was tried often enough.
        """
        world = self._world
        for tries_left in reversed(range(_TRIES)):
            try:
                self._coordinator.register(self._producer, [partition])
                break
            except StorageError:
                if not tries_left:
                    raise
        world.rest(world.profile.think_ms)
        values = world.draw_values(f"{name} {self._producer.producer_id}")
        sequence = self._sequences.get(partition, 0)
        producer = ProducerAppend(
            self._producer.producer_id, self._producer.producer_epoch, sequence, True
        )
        for tries_left in reversed(range(_TRIES)):
            try:
                world.append(self._logs.log(partition), partition, values, producer)
                break
            except StorageError:
                if not tries_left:
                    raise
        self._sequences[partition] = sequence + len(values)
        self.values += values


class TransactionalProducer:
    """Initializes, writes transactions and ends them; called again after each crash.

    It leaves transactions open at times, and does nothing for a while. Several of them may have the
    same transactional id: each one that initializes fences the others, which learn it late.
    """

    def __init__(self, world: TransactionsWorld, name: str, transactional_id: str) -> None:
        self._world = world
        self._name = name
        self._transactional_id = transactional_id

    def run(self) -> None:
        """Work until the faults end."""
        world, random = self._world, self._world.scheduler.random
        cluster = world.open_cluster()
        logs = OpenLogs(cluster, world.image)
        coordinator = open_coordinator(
            cluster, self._transactional_id, logs if random.random() < 0.5 else None
        )
        owner: ProducerIdAndEpoch | None = None
        while not world.is_ending:
            try:
                owner = coordinator.initialize(world.profile.timeout_ms, owner)
                world.scheduler.note(f"initialized: {owner}")
                owner = self._live(coordinator, logs, owner)
            except (ProducerFencedError, InvalidProducerEpochError) as error:
                world.scheduler.note(f"is fenced: {type(error).__name__}")
                owner = None
                world.rest(DELETE_DELAY_MS)
            except StorageError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")
                owner = None

    def _live(
        self, coordinator: TransactionCoordinator, logs: OpenLogs, owner: ProducerIdAndEpoch
    ) -> ProducerIdAndEpoch | None:
        """Write transactions; return the owner that alone may initialize next, None for anybody."""
        world, random = self._world, self._world.scheduler.random
        while not world.is_ending:
            is_broken = False
            writes = Writes(world, coordinator, logs, owner)
            try:
                for _ in range(random.choice((0, 1, 1, 2, 2, 4))):
                    writes.write(random.choice(world.partitions), self._name)
                    world.rest(world.profile.think_ms)
            except TransactionAbortableError:
                world.scheduler.note("its transaction was aborted by others")
                is_broken = True
            except InvalidTxnStateError:
                if owner.producer_epoch <= world.profile.last_epoch:
                    raise
                world.scheduler.note("its epochs are used up")  # the new id could not be stored
                return owner
            except StorageError as error:
                world.scheduler.note(f"gives up: {error}")
                is_broken = True
            if random.random() < world.profile.leave:
                world.scheduler.note("leaves its transaction open")
                world.rest(2 * world.profile.timeout_ms)
                if random.random() < 0.5:
                    return random.choice((None, owner))
            if is_broken or not writes.values or random.random() < world.profile.abort:
                owner = abort(world, coordinator, owner)
            else:
                owner = commit(world, coordinator, owner)
            if random.random() < _FINISHED_CHANCE:
                coordinator.complete()
            if random.random() < world.profile.leave:
                world.scheduler.note("does nothing for a while")
                world.rest(4 * DELETE_DELAY_MS)
        return None


class PlainWriter:
    """Appends records of no transaction, and does not try again."""

    def __init__(self, world: TransactionsWorld, name: str) -> None:
        self._world = world
        self._name = name

    def run(self) -> None:
        """Append until the faults end."""
        world, random = self._world, self._world.scheduler.random
        logs = OpenLogs(world.open_cluster(), world.image)
        while not world.is_ending:
            world.rest(5 * world.profile.think_ms)
            partition = random.choice(world.partitions)
            try:
                world.append(logs.log(partition), partition, world.draw_values(self._name))
            except StorageError as error:
                world.scheduler.note(f"append: {type(error).__name__}")


def abort(
    world: TransactionsWorld, coordinator: TransactionCoordinator, owner: ProducerIdAndEpoch
) -> ProducerIdAndEpoch:
    """Abort until it is known; return the owner's next identity.

    Raises:
        ProducerFencedError: another owner has begun.
    """
    while True:
        try:
            following = coordinator.abort(owner)
        except StorageError as error:
            world.scheduler.note(f"abort: {type(error).__name__}")
            world.rest(world.profile.think_ms)
        else:
            world.scheduler.note(f"aborted; next is {following}")
            world.truth.check_decided([owner], is_committed=False)
            return following


def commit(
    world: TransactionsWorld,
    coordinator: TransactionCoordinator,
    owner: ProducerIdAndEpoch,
    counting: list[ProducerIdAndEpoch] | None = None,
    batch_id: int | None = None,
) -> ProducerIdAndEpoch:
    """Commit until it is known; return the owner's next identity.

    If others have aborted the transaction, it is aborted here, too.

    Raises:
        ProducerFencedError: another owner has begun.
        InvalidTxnStateError: the micro-batch is committed.
    """
    counts = [owner] if counting is None else counting
    may_be_made = False
    while True:
        try:
            following = coordinator.commit(owner, counting, batch_id=batch_id)
        except StorageError as error:
            world.scheduler.note(f"commit: {type(error).__name__}")
            may_be_made = may_be_made or isinstance(error, UnknownOutcomeError)
            world.rest(world.profile.think_ms)
        except SparkLogError as error:
            world.scheduler.note(f"commit is refused: {type(error).__name__}")
            if not may_be_made:
                world.truth.check_refused(counts)
            if not isinstance(error, TransactionAbortableError):
                raise
            return abort(world, coordinator, owner)
        else:
            world.scheduler.note(f"committed; next is {following}")
            world.truth.check_decided(counts, is_committed=True)
            return following
