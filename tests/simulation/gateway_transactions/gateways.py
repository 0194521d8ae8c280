"""Gateways of the simulation: groups and transactions by the shipped coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from spark_log.cluster import Cluster
from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets
from spark_log.gateway.groups import ConsumerGroups, GroupCoordinators
from spark_log.gateway.transactions import Transactions
from spark_log.types import TopicPartition
from tests.simulation.consumer_protocol.gateways import ConsumerGateway
from tests.simulation.gateway_groups.gateways import ClassicGateway
from tests.simulation.gateway_process import GatewayProcess
from tests.simulation.gateway_transactions.world import GatewayTransactionsWorld
from tests.simulation.groups.true_group import GROUP_ID

_Result = TypeVar("_Result")


class TransactionGateway(GatewayProcess):
    """A gateway that coordinates the group and transactional ids.

    Its calls about transactions are made one after the other: they hold locks, and all threads of
    a simulation are one.
    """

    world: GatewayTransactionsWorld
    groups: GroupCoordinators
    consumer_groups: ConsumerGroups
    transactions: Transactions

    def open(self) -> None:
        """Make the coordinators of a new process."""
        if self.world.profile.is_classic:
            ClassicGateway.open(cast(ClassicGateway, self))
        else:
            ConsumerGateway.open(cast(ConsumerGateway, self))
        self.transactions = self.world.transactions_class(cast(Cluster, self.world))
        self._offsets: TransactionalOffsets = self.world.open_transactional_offsets()
        self._lock = asyncio.Lock()

    async def call(self, call: Callable[..., _Result], *args: Any, **settings: Any) -> _Result:
        """Return the result of a call about transactions."""
        async with self._lock:
            return await self.loop.run_blocking(lambda: call(*args, **settings))

    async def fetch_stable(self) -> dict[TopicPartition, int]:
        """Return the committed offsets, after undecided transactions are settled."""
        await self.call(self._offsets.settle_group, GROUP_ID)
        return dict(await self.loop.run_blocking(self.world.offsets.fetch, GROUP_ID))
