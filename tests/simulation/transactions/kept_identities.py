"""The simulation of clients that keep their identity after a transaction, and of their gateways.

Such a client sends the producer id and epoch of its `initialize` with each request, and its
sequence numbers go on from transaction to transaction. Gateways translate. Copies of requests that
were answered long ago arrive late, at gateways that stood still. Other producers with the same
transactional id take over, of both kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

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
from spark_log.transaction import KeptIdentityCoordinator, TopicIdPartition
from spark_log.transaction import kept_identity as kept_identity_module
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.transactions.owners import TransactionalProducer
from tests.simulation.transactions.simulation import TransactionsSimulation
from tests.simulation.transactions.world import OpenLogs, TransactionsWorld
from tests.simulation.violation import ViolationError

_TRIES = 4
_GATEWAYS = 2

_LATE_CHANCE = 0.3
"""Probability that a copy of a request arrives late."""

_LATE_ENDS = (0, 1, 3)
"""Numbers of copies of a request to end a transaction that arrive late."""

_RECONNECTS_CHANCE = 0.05

_NOTHING_ARRIVES_CHANCE = 0.2
"""Probability that no request of a transaction arrives, and its client aborts it, as librdkafka."""

_UNRESOLVED_CHANCE = 0.1
"""Probability that a client gives up a batch whose answer it does not get."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch as a client sends it.

    Attributes:
        client: the identity that the client was given.
        partition: the partition.
        sequence: the sequence number of the first record.
        values: the records.
    """

    client: ProducerIdAndEpoch
    partition: TopicIdPartition
    sequence: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EndRequest:
    """The end of a transaction as a client sends it.

    Attributes:
        client: the identity that the client was given.
        is_committed: whether to commit.
        known: the transaction that earlier requests of the connection belong to; None without one.
    """

    client: ProducerIdAndEpoch
    is_committed: bool
    known: int | None


@dataclass(slots=True)
class Network:
    """The copies of requests that have not arrived yet, by transactional id.

    Ends do not wait behind batches: they are few, and one that comes in the midst of the client's
    next transaction is what matters.
    """

    batches: list[tuple[str, BatchRequest]] = field(default_factory=list)
    ends: list[tuple[str, EndRequest]] = field(default_factory=list)


class Gateway:
    """Serves one transactional id: its state may be old, since other gateways change it, too."""

    def __init__(self, world: TransactionsWorld, transactional_id: str) -> None:
        cluster = world.open_cluster()
        self._world = world
        self._logs = OpenLogs(cluster, world.image)
        self.known: int | None = None  # of the client's connection
        self.coordinator = KeptIdentityCoordinator(cluster, transactional_id, markers_at_once=1)

    def append(self, request: BatchRequest) -> str:
        """Append a batch under the present identity of its client; say that it is acknowledged.

        Raises:
            SparkLogError: it is not acknowledged.
        """
        for is_recent in (False, True):
            found = self.coordinator.verify_kept(
                request.client, [request.partition], is_recent=is_recent
            )
            producer = ProducerAppend(
                found.producer.producer_id,
                found.producer.producer_epoch,
                request.sequence,
                is_transactional=True,
                continues=found.continues,
            )
            log = self._logs.log(request.partition)
            try:
                self._world.append(log, request.partition, request.values, producer)
            except InvalidProducerEpochError:
                if is_recent:
                    raise
            else:
                break
        return "acknowledged"


class KeepingClient:
    """A producer of Kafka before ``EndTxn`` version 5, with two gateways.

    It commits only what was acknowledged. If it gives up a batch, it aborts, and then initializes
    with its own identity (KIP-360), as Kafka's clients do.
    """

    def __init__(
        self, world: TransactionsWorld, network: Network, name: str, transactional_id: str
    ) -> None:
        self._world = world
        self._network = network
        self._name = name
        self._transactional_id = transactional_id

    def run(self) -> None:
        """Work until the faults end."""
        world = self._world
        self._gateways = [Gateway(world, self._transactional_id) for _ in range(_GATEWAYS)]
        client: ProducerIdAndEpoch | None = None
        while not world.is_ending:
            try:
                client = self._gateway().coordinator.initialize(world.profile.timeout_ms, client)
                world.scheduler.note(f"initialized: {client}")
                client = self._live(client)
            except (
                ProducerFencedError,
                InvalidProducerEpochError,
                TransactionAbortableError,
            ) as error:
                world.scheduler.note(f"is fenced: {type(error).__name__}")
                client = None
                world.rest(DELETE_DELAY_MS)
            except InvalidTxnStateError as error:
                raise ViolationError(
                    f"{self._name}, which was not fenced, is told: {error}"
                ) from error
            except StorageError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _gateway(self) -> Gateway:
        random = self._world.scheduler.random
        return self._gateways[0 if random.random() < 0.7 else 1]

    def _live(self, client: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Write transactions until one leaves a batch without an answer."""
        world, random = self._world, self._world.scheduler.random
        sequences: dict[TopicIdPartition, int] = {}
        while not world.is_ending:
            values: list[bytes] = []
            is_broken = False
            if random.random() < _NOTHING_ARRIVES_CHANCE * world.profile.abort:
                world.scheduler.note("no request of its transaction arrives")
                self._end(client, [], is_committed=False)
                continue
            try:
                for _ in range(random.choice((1, 2, 3, 4))):
                    partition = random.choice(world.partitions)
                    self._retried(lambda at, to=partition: self._register(at, client, to))
                    world.rest(world.profile.think_ms)
                    if values and random.random() < world.profile.leave:
                        world.scheduler.note("leaves its transaction open")
                        world.rest(2 * world.profile.timeout_ms)
                    for _ in range(random.choice((0, 1, 1, 2))):
                        values += self._write(client, partition, sequences)
            except StorageError as error:
                world.scheduler.note(f"gives up: {error}")
                is_broken = True
            if not is_broken and not values and not sequences:
                continue
            is_committed = not is_broken and random.random() >= world.profile.abort
            self._end(client, values, is_committed=is_committed)
            if is_broken:
                return client
        return client

    def _register(
        self, gateway: Gateway, client: ProducerIdAndEpoch, partition: TopicIdPartition
    ) -> None:
        if self._world.scheduler.random.random() < _RECONNECTS_CHANCE:
            gateway.known = None
        gateway.known = gateway.coordinator.register_kept(client, [partition])

    def _write(
        self,
        client: ProducerIdAndEpoch,
        partition: TopicIdPartition,
        sequences: dict[TopicIdPartition, int],
    ) -> tuple[bytes, ...]:
        world, random = self._world, self._world.scheduler.random
        values = tuple(world.draw_values(f"{self._name} {client}"))
        request = BatchRequest(client, partition, sequences.get(partition, 0), values)
        if random.random() < _LATE_CHANCE:
            self._network.batches.append((self._transactional_id, request))
        if random.random() < _UNRESOLVED_CHANCE * world.profile.abort:
            raise UnknownOutcomeError("no answer", path="")
        self._retried(lambda at: at.append(request))
        sequences[partition] = request.sequence + len(values)
        return values

    def _end(self, client: ProducerIdAndEpoch, values: list[bytes], *, is_committed: bool) -> None:
        world, random = self._world, self._world.scheduler.random
        while True:
            gateway = self._gateway()
            request = EndRequest(client, is_committed, gateway.known)
            copies = random.choice(_LATE_ENDS)
            self._network.ends += [(self._transactional_id, request)] * copies
            try:
                unknown = gateway.coordinator.end_kept(
                    client,
                    is_committed=is_committed,
                    known=gateway.known,
                    never_aborts_commits=True,
                )
            except StorageError as error:
                world.scheduler.note(f"end: {type(error).__name__}")
                gateway.known = None  # it connects again
                world.rest(world.profile.think_ms)
                continue
            if unknown is None:
                break
            gateway.known = unknown
            world.scheduler.note("the connection did not know the transaction")
        world.scheduler.note("committed" if is_committed else "aborted")
        world.truth.check_ended(values, is_committed=is_committed)

    def _retried(self, ask: object) -> None:
        """Send a request, again after faults, to any gateway.

        Raises:
            SparkLogError: it is refused, or was tried often enough.
        """
        assert callable(ask)
        for tries_left in reversed(range(_TRIES)):
            try:
                ask(self._gateway())
            except StorageError:
                if not tries_left:
                    raise
            else:
                return


class LateGateway:
    """Delivers copies of requests late, as a gateway that has stood still."""

    def __init__(self, world: TransactionsWorld, network: Network) -> None:
        self._world = world
        self._network = network
        self._gateways: dict[str, Gateway] = {}

    def deliver_batches(self) -> None:
        """Deliver batches until the faults end; what is left then arrives after that."""
        world, late = self._world, self._network.batches
        while not (world.is_ending and not late):
            world.rest(world.profile.think_ms)
            if late:
                transactional_id, request = late.pop(0)
                gateway = self._gateway(transactional_id)
                self._deliver("batch", gateway, partial(gateway.append, request))

    def deliver_ends(self) -> None:
        """Deliver the ends of transactions, most of them in the client's next transaction."""
        world, late = self._world, self._network.ends
        while not (world.is_ending and not late):
            world.rest(world.profile.think_ms * world.scheduler.random.choice((0.5, 1, 3)))
            if late:
                transactional_id, request = late.pop(0)
                gateway = self._gateway(transactional_id)
                self._deliver("end", gateway, partial(_end, gateway, request))

    def _gateway(self, transactional_id: str) -> Gateway:
        gateway = self._gateways.get(transactional_id)
        if gateway is None or self._world.scheduler.random.random() < 0.3:
            gateway = self._gateways[transactional_id] = Gateway(self._world, transactional_id)
        return gateway

    def _deliver(self, kind: str, gateway: Gateway, serve: Callable[[], str]) -> None:
        world, random = self._world, self._world.scheduler.random
        try:
            if random.random() < 0.5:
                gateway.coordinator.refresh()  # when the request was sent
            if kind == "batch":
                world.rest(random.choice((1.0, 5.0, 30.0)) * world.profile.think_ms)
            world.scheduler.note(f"late {kind}: {serve()}")
        except SparkLogError as error:
            world.scheduler.note(f"late {kind}: {type(error).__name__}")


def _end(gateway: Gateway, request: EndRequest) -> str:
    unknown = gateway.coordinator.end_kept(
        request.client, is_committed=request.is_committed, known=request.known
    )
    return "done" if unknown is None else "unknown"


class KeptIdentitySimulation(TransactionsSimulation):
    """Clients that keep their identity, their gateways, late requests, and other producers."""

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of one without a safety rule."""
        super().__init__(seed, variant)
        random = Random(f"kept {seed}")
        faults = replace(self.profile.faults, vandals=0)
        self.profile = self.world.profile = replace(
            self.profile,
            faults=faults,
            producers=0,
            zombies=0,
            drivers=0,
            executors=0,
            think_ms=DELETE_DELAY_MS * random.choice((0.005, 0.02)),
            timeout_ms=int(DELETE_DELAY_MS * random.choice((1, 3, 10))),
            leave=random.choice((0.0, 0.1, 0.3)),
            abort=random.choice((0.0, 0.2, 0.4)),
        )
        self.clients = random.choice((1, 1, 2))
        self.twins = random.choice((0, 0, 1))
        self.owners = random.choice((0, 0, 1))
        self.late = random.choice((0, 1, 1, 2))
        self.patches = (
            *self.patches,
            (kept_identity_module, "LAST_EPOCH", self.profile.last_epoch),
        )

    def spawn_actors(self) -> None:
        """Make the actors."""
        super().spawn_actors()
        world, network = self.world, Network()
        spawn = world.scheduler.spawn_mortal
        for number in range(self.clients):
            name = self.ids[0] if number == 0 else self.ids[-1]
            spawn(f"client {number}", KeepingClient(world, network, f"c{number}", name).run)
        for number in range(self.twins):
            client = KeepingClient(world, network, f"t{number}", self.ids[0])
            spawn(f"twin {number}", client.run)
        for number in range(self.owners):
            owner = TransactionalProducer(world, f"o{number}", self.ids[0])
            spawn(f"owner {number}", owner.run)
        for number in range(self.late):
            spawn(f"late gateway {number}", LateGateway(world, network).deliver_batches)
            spawn(f"late connection {number}", LateGateway(world, network).deliver_ends)
