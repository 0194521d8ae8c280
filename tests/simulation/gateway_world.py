"""`GatewayWorld`: the part that the worlds of all simulations of gateways share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_log.coordinator.group.group_log import GroupLog
from tests.simulation.gateway_process import Network
from tests.simulation.groups.world import LOG_CONFIG
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedStore


class GatewayWorld:
    """The end of faults, the logs of groups, and time; a world has the attributes.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock.
        store: the store that gateways use; ``store.faults`` has the rates of faults.
        profile: the conditions, with ``faults`` and ``trim_every``.
        offsets: the offsets table, with ``slow`` and ``lost_fences``.
        network: the conditions of requests.
        preferred: the gateway that clients are sent to.
        is_ending: faults have ended.
    """

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    profile: Any
    offsets: Any
    network: Network
    preferred: int
    is_ending: bool

    def end_faults(self) -> None:
        """Let the storage and the network work, and send all clients to one gateway."""
        self.store.faults = self.profile.faults.without_faults()
        self.network = replace(self.network, lost=0.0, late=0.0, stopped=0.0)
        self.is_ending = True
        self.offsets.slow = self.offsets.lost_fences = 0.0
        self.preferred = 0

    def open_log(self, group_id: str) -> GroupLog:
        """Return a new handle of the group's log."""
        profile = self.profile

        class Log(GroupLog):
            trim_every = profile.trim_every

        return Log(self.store, group_id, self.clock, LOG_CONFIG)

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))
