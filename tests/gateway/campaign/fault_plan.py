"""`FaultPlan`: strikes gateways, clients and the store by a seeded plan."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from tests.faults.clock_shift import DAYS_OFF
from tests.faults.schedule import Schedule
from tests.gateway.campaign.root import S3Root

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.campaign.actors import Actors
    from tests.gateway.campaign.gateways import GatewayPlace, Gateways
    from tests.gateway.campaign.workloads import Blow

_BLOWS = {
    "kill_gateway": 5,
    "pause_gateway_for_short": 3,
    "pause_gateway_for_long": 5,
    "drain_gateway": 3,
    "kill_member": 2,
    "pause_member": 2,
    "replace_member": 2,
    "kill_copier": 2,
    "pause_copier": 2,
}
_OF_ROOT = {"clock": 2, "freeze_store": 4, "kill_store": 1}
"""The relative rates of the faults."""

_LOOK_S = 0.2


class FaultPlan:
    """Faults for a time. The plan comes from a seed; the timing differs from run to run.

    Attributes:
        done: number of faults of each kind.
    """

    def __init__(
        self, gateways: Gateways, actors: Actors, seed: int, say: Callable[[str], None]
    ) -> None:
        self.done: Counter[str] = Counter()
        self._gateways = gateways
        self._root = actors.root
        self._actors = actors
        self._chance = random.Random(seed)
        self._schedule = Schedule()
        self._say = say
        self._blows: dict[str, tuple[int, Blow]] = {
            name: (rate, partial(self._own_blow, name))
            for name, rate in {
                **_BLOWS,
                **{each: _OF_ROOT[each] for each in self._root.faults},
            }.items()
        }
        for workload in actors.workloads:
            self._blows.update(workload.blows())

    def run(self, duration_s: float) -> None:
        """Strike for a duration, and return when everything that was paused continues."""
        until_s = time.monotonic() + duration_s

        def strike() -> None:
            if time.monotonic() >= until_s:
                return
            rates = [rate for rate, _ in self._blows.values()]
            name = self._chance.choices(list(self._blows), rates)[0]
            if self._blows[name][1](self._chance, self._schedule):
                self.done[name] += 1
            pause_s = self._chance.choice((0.3, 1.5, 3.0)) * self._chance.uniform(0.5, 2)
            self._schedule.do_later(pause_s, strike)

        self._schedule.do_later(0, strike)
        self._schedule.run(self._wait_until)

    def _own_blow(self, name: str, chance: random.Random, schedule: Schedule) -> bool:
        found: bool = getattr(self, f"_{name}")()
        return found

    def _wait_until(self, at_s: float) -> None:
        """Wait; start again what has ended."""
        while True:
            for place in self._gateways.look():
                self._start_later(place)
            self._actors.look()
            left_s = at_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _LOOK_S))

    # --- gateways --------------------------------------------------------------------------------

    def _victim(self) -> GatewayPlace | None:
        """Return a gateway that runs. Seldom it is the last one."""
        up = self._gateways.up
        least = 1 if self._chance.random() < 0.1 else 2
        return self._chance.choice(up) if len(up) >= least else None

    def _start_later(self, place: GatewayPlace) -> None:
        # One address stays: a client that has missed all changes of the others comes back by it.
        same_port = self._chance.random() < 0.3 or place.number == 0
        wait_s = self._chance.choice((0, 0.5, 3)) * self._chance.uniform(0.5, 1)

        def start() -> None:
            if place.process is None:
                self._gateways.start(place, same_port=same_port)

        self._schedule.do_later(wait_s, start)

    def _kill_gateway(self) -> bool:
        place = self._victim()
        if place is None:
            return False
        self._say(f"gateway {place.number} is killed")
        self._gateways.kill(place)
        self._start_later(place)
        return True

    def _pause_gateway_for_short(self) -> bool:
        return self._pause_gateway(self._chance.uniform(0.2, 1.3))

    def _pause_gateway_for_long(self) -> bool:
        """Past the gateways' timeouts, often past those of requests and sessions."""
        return self._pause_gateway(self._chance.choice((4, 8, 12)) * self._chance.uniform(0.7, 1.3))

    def _pause_gateway(self, pause_s: float) -> bool:
        place = self._victim()
        if place is None:
            return False
        self._say(f"gateway {place.number} is stopped for {pause_s:.1f} s")
        self._gateways.pause(place)
        life = place.lives
        self._schedule.do_later(pause_s, lambda: self._gateways.resume(place, life))
        return True

    def _drain_gateway(self) -> bool:
        place = self._victim()
        if place is None:
            return False
        self._say(f"gateway {place.number} is told to end")
        self._gateways.drain(place)
        return True

    def _clock(self) -> bool:
        place = self._chance.choice(self._gateways.places)
        if place.clock is None:
            return False
        days = self._chance.choice(DAYS_OFF)
        self._say(f"the clock of gateway {place.number} is {days} days off")
        place.clock.jump(days=days)
        return True

    # --- the store -------------------------------------------------------------------------------

    def _freeze_store(self) -> bool:
        root = self._root
        if not isinstance(root, S3Root) or not self._gateways.is_store_up:
            return False
        pause_s = self._chance.choice((0.3, 1, 3, 8)) * self._chance.uniform(0.5, 1.2)
        self._say(f"the store hangs for {pause_s:.1f} s")
        self._gateways.is_store_up = False
        root.freeze()
        self._schedule.do_later(pause_s, lambda: self._store_returns(root.thaw))
        return True

    def _kill_store(self) -> bool:
        root = self._root
        if not isinstance(root, S3Root) or not self._gateways.is_store_up:
            return False
        pause_s = self._chance.uniform(0.2, 2)
        self._say(f"the store is down for {pause_s:.1f} s")
        self._gateways.is_store_up = False
        root.kill()
        self._schedule.do_later(pause_s, lambda: self._store_returns(root.start))
        return True

    def _store_returns(self, call: Callable[[], None]) -> None:
        call()
        assert isinstance(self._root, S3Root)
        self._root.forget_requests()

        def note() -> None:
            self._gateways.is_store_up = True

        self._schedule.do_later(2, note)  # a gateway whose start failed may end a little later

    # --- clients ---------------------------------------------------------------------------------

    def _kill_member(self) -> bool:
        return self._strike_tool("members", "kill")

    def _pause_member(self) -> bool:
        return self._strike_tool("members", "pause")

    def _kill_copier(self) -> bool:
        return self._strike_tool("copiers", "kill")

    def _pause_copier(self) -> bool:
        return self._strike_tool("copiers", "pause")

    def _strike_tool(self, kind: str, how: str) -> bool:
        """Kill a Java process, or stop it past its session and its transaction's timeout."""
        tools = [each for each in self._actors.tools(kind) if each.is_alive and not each.stops]
        if not tools:
            return False
        tool = self._chance.choice(tools)
        pause_s = self._chance.uniform(4, 18)
        self._say(f"{tool.name}: {how}{f' for {pause_s:.1f} s' if how == 'pause' else ''}")
        if how == "kill":
            tool.was_struck = True
            tool.kill()
        else:
            tool.pause()
            self._schedule.do_later(pause_s, tool.resume)
        return True

    def _replace_member(self) -> bool:
        return self._actors.replace_member(self._chance)
