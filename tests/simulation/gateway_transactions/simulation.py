"""The simulation of offsets that Kafka's clients commit with transactions, through gateways."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, cast

from spark_log.cluster import Cluster
from spark_log.gateway.groups import consumer_groups, group_coordinators
from spark_log.gateway.transactions import transactions
from spark_log.log import StateLog
from spark_log.log import state_log as state_log_module
from tests.simulation.consumer_protocol.world import REBALANCE_MS, TOPICS
from tests.simulation.gateway_transactions.clients import (
    TransactionalClassicClient,
    TransactionalConsumerClient,
)
from tests.simulation.gateway_transactions.gateways import TransactionGateway
from tests.simulation.gateway_transactions.rules import (
    GATEWAY_TRANSACTIONS_SOUND,
    GatewayTransactionsVariant,
)
from tests.simulation.gateway_transactions.true_offsets import TrueSentOffsets
from tests.simulation.gateway_transactions.world import (
    TRANSACTION_TIMEOUT_MS,
    GatewayTransactionsProfile,
    GatewayTransactionsWorld,
    SentOffsetsTable,
    draw_gateway_transactions_profile,
)
from tests.simulation.groups.true_group import GROUP_ID
from tests.simulation.groups.world import LOG_CONFIG
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError

_CHECK_MS = 400
_SETTLED_WITHIN_MS = 60 * REBALANCE_MS
_QUIET_MS = 2 * REBALANCE_MS


class GatewayTransactionsSimulation(Simulation):
    """Members of a group with producers, and gateways that coordinate both."""

    profile: GatewayTransactionsProfile
    world: GatewayTransactionsWorld

    def __init__(
        self, seed: int, variant: GatewayTransactionsVariant = GATEWAY_TRANSACTIONS_SOUND
    ) -> None:
        """Return a simulation of the shipped code, or without one of its safety rules."""
        profile = draw_gateway_transactions_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        clock = SimulatedClock(self.scheduler)
        disk = SimulatedDisk(clock)
        members = profile.members + profile.statics
        self.ids = [
            f"txn{0 if profile.twins and number < 2 else number}" for number in range(members)
        ]
        truth = TrueSentOffsets(disk, clock, transactional_ids=set(self.ids))
        truth.note = self.scheduler.note
        store = SimulatedStore(disk, self.scheduler, truth, profile.faults)
        self.world = GatewayTransactionsWorld(
            self.scheduler,
            clock,
            store,
            truth,
            profile,
            SentOffsetsTable(self.scheduler, truth, store, profile.slow_offsets),
            variant.transactions,
            variant.offsets,
            profile.network,
        )
        self.world.set_partitions("t", TOPICS["t"], profile.partitions)
        self.clients: list[Any] = []

        def open_offsets(world: GatewayTransactionsWorld) -> object:
            return world.open_transactional_offsets()

        self.patches = (
            (consumer_groups, "CHECK_INTERVAL_MS", _CHECK_MS),
            (group_coordinators, "CHECK_INTERVAL_MS", _CHECK_MS),
            (transactions, "LazyTransactionalOffsets", open_offsets),
            (state_log_module, "INTERNAL_LOG_CONFIG", LOG_CONFIG),
            (StateLog, "trim_every", profile.trim_every),
            *variant.patches,
        )

    @property
    def records(self) -> int:
        """Number of transactions that were committed with offsets."""
        return self.world.truth.transactions

    def spawn_actors(self) -> None:
        """Make the gateways and the members that the profile has."""
        world, spawn, profile = self.world, self.scheduler.spawn_mortal, self.profile
        gateways = [TransactionGateway(world, number) for number in range(profile.gateways)]
        for gateway in gateways:
            spawn(f"gateway{gateway.number}", gateway.run)
        kind = TransactionalClassicClient if profile.is_classic else TransactionalConsumerClient
        for number, transactional_id in enumerate(self.ids):
            is_static = number >= profile.members
            name = f"{'s' if is_static else 'm'}{number}"
            client = kind(world, gateways, name, name if is_static else None, transactional_id)
            self.clients.append(client)
            spawn(name, client.run)
        self.scheduler.spawn("mover", self._move, is_mortal=False)

    def _move(self) -> None:
        """Send the clients from one gateway to another."""
        world = self.world
        while not world.is_ending:
            world.rest(world.profile.move_ms)
            if not world.is_ending:
                world.preferred = self.scheduler.random.randrange(world.profile.gateways)

    def settle(self) -> None:
        """Run until the clients have all partitions and commit, then until all actors have ended.

        Members that poll and commit seldom may have committed nothing by the time that the group
        is quiet.
        """
        world, scheduler = self.world, self.scheduler
        until_ms = scheduler.now_ms + _SETTLED_WITHIN_MS
        quiet_ms = scheduler.now_ms
        transactions_before = world.truth.transactions

        def is_settled() -> bool:
            nonlocal quiet_ms
            if next(self._problems(), ""):
                quiet_ms = scheduler.now_ms
            is_quiet = scheduler.now_ms - quiet_ms > _QUIET_MS
            is_committed = world.truth.transactions > transactions_before
            return (is_quiet and is_committed) or scheduler.now_ms > until_ms

        scheduler.run(is_settled)
        if problem := next(self._problems(), ""):
            raise ViolationError(f"{_SETTLED_WITHIN_MS} ms after faults ended: {problem}")
        if world.truth.transactions == transactions_before:
            raise ViolationError(
                f"no transaction is committed within {_SETTLED_WITHIN_MS} ms after faults ended"
            )
        world.is_over = True
        scheduler.run(lambda: False)
        self.check_all_ended()

    def check_end(self) -> None:
        """Check that the table has what was decided, after transactions are settled."""
        world = self.world
        transactions = world.transactions_class(cast(Cluster, world))
        for transactional_id in sorted(set(self.ids)):
            transactions.init_producer_id(transactional_id, TRANSACTION_TIMEOUT_MS)
        world.open_transactional_offsets().settle_group(GROUP_ID)
        decided = {place: each.offset for place, each in world.truth.decided.items()}
        found = {place: offset for place, offset in world.truth.positions.items() if offset}
        if found != {place: offset for place, offset in decided.items() if offset}:
            raise ViolationError(f"in the end {found} is committed, and {decided} was decided")

    def _problems(self) -> Iterator[str]:
        group = self.world.truth.group
        if group.state != "Stable":
            yield f"the group is {group.state}"
        found = {self._member_id(each) for each in self.clients}
        if group.members.keys() != found:
            yield f"the group is {sorted(group.members)}, the clients are {sorted(found)}"
            return
        for client in self.clients:
            reader = client.reader
            if reader.reading.keys() != group.members[self._member_id(client)].owned:
                yield f"{client.name} reads {sorted(reader.reading)}"

    def _member_id(self, client: Any) -> str:
        return str(client.member_id if self.profile.is_classic else client.reader.member_id)
