"""Gateways of the simulation: the shipped coordinator of groups in a simulated process."""

from __future__ import annotations

from typing import Any, cast

from spark_log.cluster import Cluster
from spark_log.gateway.groups import ConsumerGroups, CoordinatedConsumerGroup
from tests.simulation.consumer_protocol.world import ConsumerProtocolWorld
from tests.simulation.gateway_process import GatewayProcess


class ConsumerGateway(GatewayProcess):
    """A gateway that coordinates the group if it is asked.

    Attributes:
        consumer_groups: the groups in its memory.
    """

    world: ConsumerProtocolWorld
    consumer_groups: ConsumerGroups

    def open(self) -> None:
        """Make the coordinator of a new process."""
        world = self.world

        class Groups(world.groups_class):  # type: ignore[misc, name-defined]
            def _open_group(self, group_id: str) -> CoordinatedConsumerGroup:
                return world.group_class(
                    world.open_log(group_id), world.offsets, group_id, read_image=world.image
                )

        cluster: Any = world
        self.consumer_groups = Groups(
            cast(Cluster, cluster),
            self.loop.run_blocking,
            is_coordinator=self.is_coordinator,
            call_later=self.loop.call_later,
        )
