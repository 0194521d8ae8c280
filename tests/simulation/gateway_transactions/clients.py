"""Members of the group that commit their offsets by transactions, as Kafka's clients do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from spark_log.errors import (
    CommitFailedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    SparkLogError,
    TransactionAbortableError,
)
from spark_log.gateway.groups import GroupError
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionOffset
from spark_log.types import ConsumerGroupMetadata, TopicPartition
from tests.simulation.consumer_protocol.clients import ConsumerClient
from tests.simulation.consumer_protocol.true_group import Reader
from tests.simulation.consumer_protocol.world import TOPICS
from tests.simulation.gateway_groups.gateways import ClassicClient
from tests.simulation.gateway_process import Connection
from tests.simulation.gateway_transactions.gateways import TransactionGateway
from tests.simulation.gateway_transactions.true_offsets import SentOffset
from tests.simulation.gateway_transactions.world import (
    SESSION_MS,
    TRANSACTION_TIMEOUT_MS,
    GatewayTransactionsWorld,
)
from tests.simulation.groups.true_group import GROUP_ID

_TRIES = 4
_FENCED = (ProducerFencedError, InvalidProducerEpochError)


class TransactionalProducer:
    """The producer of one process, with a transactional id.

    Attributes:
        transactional_id: the transactional id.
    """

    def __init__(
        self, world: GatewayTransactionsWorld, connection: Connection, transactional_id: str
    ) -> None:
        """Return a producer that has not begun."""
        self.transactional_id = transactional_id
        self._world = world
        self._connection = connection
        self._process: ProducerIdAndEpoch | None = None
        self._producer: ProducerIdAndEpoch | None = None
        self._shown: dict[object, int] = {}  # of each connection, the transaction that it has shown

    def forget(self) -> None:
        """Begin as a new process, which fences this one."""
        self._process = self._producer = None
        self._shown = {}

    def commit(
        self,
        reader: Reader,
        instance_id: str | None,
        partitions: list[TopicPartition],
    ) -> None:
        """Commit positions in a transaction; or abort it, or leave it open."""
        world, random = self._world, self._world.scheduler.random
        if self._producer is None:
            self._begin()
        process, producer = self._process, self._producer
        if producer is None or process is None:
            return
        number = next(world.transactions)
        offsets = [
            TransactionOffset(
                GROUP_ID,
                tp.topic,
                TOPICS[tp.topic],
                tp.partition,
                position.offset,
                metadata=str(SentOffset(position.acquisition, process, number)),
            )
            for tp in partitions
            if (position := reader.reading.get(tp)) is not None
        ]
        if not offsets:
            return
        member = ConsumerGroupMetadata(GROUP_ID, reader.epoch, reader.member_id, instance_id)
        is_sent = self._send(producer, member, offsets)
        chance = random.random()
        if not world.is_ending and chance < world.profile.pause * 20:
            world.scheduler.note("stands still in a transaction")
            world.rest(1.5 * SESSION_MS)
        if self._producer is None:
            return  # it was fenced
        if is_sent and not world.is_ending and random.random() < world.profile.abort:
            if random.random() < 0.5:
                world.scheduler.note("leaves a transaction open")
                self.forget()
                return
            is_sent = False
        self._end(producer, number, is_committed=is_sent)

    def _begin(self) -> None:
        found = self._ask(
            lambda gateway: gateway.call(
                gateway.transactions.init_producer_id, self.transactional_id, TRANSACTION_TIMEOUT_MS
            )
        )
        if isinstance(found, ProducerIdAndEpoch):
            self._process = self._producer = found

    def _send(
        self,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        offsets: list[TransactionOffset],
    ) -> bool:
        """Send offsets, again after faults; return whether they are in the transaction."""
        shown = self._shown

        async def serve(gateway: TransactionGateway) -> Any:
            transactions, name = gateway.transactions, self.transactional_id
            if not self._world.profile.keeps_identity:
                return await gateway.call(
                    transactions.send_offsets, name, producer, member, offsets
                )
            shown[gateway.loop] = await gateway.call(
                transactions.add_kept, name, producer, (), {GROUP_ID}
            )
            return await gateway.call(
                transactions.send_kept_offsets, name, producer, member, offsets
            )

        for _ in range(_TRIES):
            found = self._ask(serve)
            if found is True:
                self._world.scheduler.note(f"sends offsets in epoch {member.generation_id}")
                return True
            if isinstance(found, (*_FENCED, InvalidTxnStateError)):
                self.forget()
                return False
            if isinstance(found, (CommitFailedError, TransactionAbortableError)):
                return False
            self._world.rest(self._world.profile.poll_ms)
        return False

    def _end(self, producer: ProducerIdAndEpoch, number: int, *, is_committed: bool) -> None:
        """End the transaction, until the outcome is known or the producer begins anew."""
        world, shown = self._world, self._shown

        async def serve(gateway: TransactionGateway) -> Any:
            transactions, name = gateway.transactions, self.transactional_id
            if not world.profile.keeps_identity:
                return await gateway.call(
                    transactions.end, name, producer, is_committed=is_committed
                )
            unknown = await gateway.call(
                transactions.end_kept,
                name,
                producer,
                is_committed=is_committed,
                known=shown.get(gateway.loop),
            )
            if unknown is None:
                return producer
            shown[gateway.loop] = unknown
            return False

        for _ in count():
            found = self._ask(serve)
            if isinstance(found, ProducerIdAndEpoch):
                self._producer = found
                world.scheduler.note("commits" if is_committed else "aborts")
                world.truth.check_ended(number, is_committed=is_committed, has_offsets=True)
                return
            if isinstance(found, (*_FENCED, InvalidTxnStateError, TransactionAbortableError)):
                world.scheduler.note(f"cannot end: {type(found).__name__}")
                self.forget()
                return
            if world.is_over or world.scheduler.random.random() < 0.05:
                self.forget()
                return
            world.rest(world.profile.poll_ms)

    def _ask(self, serve: Callable[[TransactionGateway], Awaitable[Any]]) -> Any:
        """Return the result, True for None; the error; or None without an answer."""

        async def serve_safely(gateway: TransactionGateway) -> Any:
            try:
                found = await serve(gateway)
            except SparkLogError as error:
                return error
            return True if found is None else found

        return self._connection.ask(serve_safely)


class TransactionalConsumerClient(ConsumerClient):
    """A member of the consumer protocol whose offsets are committed by its producer."""

    def __init__(
        self,
        world: GatewayTransactionsWorld,
        gateways: list[TransactionGateway],
        name: str,
        instance_id: str | None,
        transactional_id: str,
    ) -> None:
        """Return a client; `run` is its life."""
        super().__init__(world, gateways, name, instance_id)  # type: ignore[arg-type]
        self._producer = TransactionalProducer(world, self._connection, transactional_id)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._producer.forget()

    def _fetch(self, gateway: Any) -> Awaitable[Any]:
        found: Awaitable[Any] = gateway.fetch_stable()
        return found

    def _commit(self, partitions: list[TopicPartition]) -> None:
        self._producer.commit(self.reader, self._instance_id, partitions)
        self._note_late_requests()


class TransactionalClassicClient(ClassicClient):
    """A member of the classic protocol whose offsets are committed by its producer.

    Attributes:
        reader: what the model knows of it.
    """

    def __init__(
        self,
        world: GatewayTransactionsWorld,
        gateways: list[TransactionGateway],
        name: str,
        instance_id: str | None,
        transactional_id: str,
    ) -> None:
        """Return a client; `run` is its life."""
        super().__init__(world, gateways, name, instance_id)  # type: ignore[arg-type]
        self.reader = Reader()
        world.truth.readers.append(self.reader)
        self._truth = world.truth
        self._session_ms = SESSION_MS
        self._partitions = tuple(
            TopicPartition("t", number) for number in range(world.profile.partitions)
        )
        self._producer = TransactionalProducer(world, self._connection, transactional_id)

    def run(self) -> None:
        """Consume; called again after each crash, without memory."""
        self._producer.forget()
        super().run()

    def _forget(self) -> None:
        super()._forget()
        self.reader.reading.clear()

    def _fetch(self, gateway: Any) -> Awaitable[Any]:
        found: Awaitable[Any] = gateway.fetch_stable()
        return found

    def _begin(self, partition: TopicPartition, offset: int) -> None:
        reader = self.reader
        reader.member_id, reader.epoch = self.member_id, self.generation
        place = TOPICS[partition.topic], partition
        reader.reading[partition] = self._truth.begin(reader, place, offset)
        self.reading[partition] = offset

    def _on_handled(self, partition: TopicPartition) -> None:
        position = self.reader.reading[partition]
        position.offset = self.reading[partition]
        self._truth.on_handled((TOPICS[partition.topic], partition), position.offset)

    def _commit(self) -> GroupError:
        self._producer.commit(self.reader, self.instance_id, list(self.reader.reading))
        return GroupError.NONE
