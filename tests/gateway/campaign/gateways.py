"""The gateways of a campaign: each has a place, in which its processes follow each other."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.clock_shift import ClockShift
from tests.faults.restarted_server import quiet_port
from tests.gateway.campaign.root import DiskRoot, S3Root
from tests.gateway.processes import GatewayProcess

_PORTS_PER_GATEWAY = 3

_SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 300,
    "broker.join.delay.ms": 500,
}
"""Shorter timeouts would end on a busy machine by themselves."""

_MOVE_PAUSE_S = 8.0
"""Time between two changes of ports: clients that know no living address wait for minutes."""


@dataclass
class GatewayPlace:
    """The place of one gateway.

    Attributes:
        number: its number.
        process: its process; None while there is none.
        pauses: number of pauses of the process that have not ended.
        is_ending: whether the process was told to end.
        clock: the wall clock of its processes.
        lives: number of processes so far.
    """

    number: int
    process: GatewayProcess | None = None
    pauses: int = 0
    is_ending: bool = False
    clock: ClockShift | None = None
    lives: int = 0

    @property
    def is_up(self) -> bool:
        """Whether its process runs, and is neither paused nor ending."""
        return self.process is not None and not self.pauses and not self.is_ending


class Gateways:
    """All gateways.

    Attributes:
        places: the places.
        addresses: all addresses at which one may listen.
        failures: what must not happen, and did.
    """

    def __init__(
        self,
        root: DiskRoot | S3Root,
        count: int,
        folder: Path,
        seed: int,
        clocks: Sequence[ClockShift] = (),
    ) -> None:
        self._root = root
        self._folder = folder
        self._chance = random.Random(f"ports of {seed}")
        ports: set[int] = set()
        while len(ports) < count * _PORTS_PER_GATEWAY:
            ports.add(quiet_port())
        self._free = sorted(ports)
        self._moved_s = time.monotonic()
        self._last_port: dict[int, int] = {}
        self.addresses = tuple(f"127.0.0.1:{port}" for port in self._free)
        self.places = [
            GatewayPlace(number, clock=clocks[number] if clocks else None)
            for number in range(count)
        ]
        self.failures: list[str] = []
        self.is_store_up = True

    @property
    def up(self) -> list[GatewayPlace]:
        """The places whose processes run."""
        return [each for each in self.places if each.is_up]

    def start(self, place: GatewayPlace, *, same_port: bool = False) -> None:
        """Start a process in a place that has none; it listens a little later."""
        assert place.process is None
        before = self._last_port.get(place.number)
        now_s = time.monotonic()
        stays = same_port or now_s - self._moved_s < _MOVE_PAUSE_S
        if before is not None and stays:
            port = before
        else:
            # Nobody takes the port that another gateway will come back to.
            others = set(self._free) - set(self._last_port.values())
            port = self._chance.choice(sorted(others))
            self._moved_s = now_s
        self._free.remove(port)
        self._last_port[place.number] = port
        options = [
            argument
            for key, value in self._root.options_of_gateway(place.number).items()
            for argument in ("--storage-option", f"{key}={value}")
        ]
        environment = {"SPARK_LOG_LOG_LEVEL": os.environ.get("CAMPAIGN_LOG_LEVEL", "INFO")}
        if place.clock is not None:
            environment |= place.clock.environment()
        with self.log_path(place.number, place.lives).open("wb") as log:
            place.process = GatewayProcess(
                self._root.url,
                _SETTINGS,
                f"127.0.0.1:{port}",
                options=options,
                environment=environment,
                log=log,
                wait=False,
            )
        place.lives += 1
        place.is_ending = False

    def log_path(self, number: int, life: int) -> Path:
        """Return the path of the log of one process."""
        return self._folder / f"gateway-{number}.{life}.log"

    def kill(self, place: GatewayPlace) -> None:
        """End the process of a place at once."""
        assert place.process is not None
        place.process.kill()
        self._vacate(place)

    def drain(self, place: GatewayPlace) -> None:
        """Tell the process of a place to end; `look` sees that it has."""
        assert place.process is not None
        place.is_ending = True
        place.process.terminate()

    def pause(self, place: GatewayPlace) -> None:
        """Stop the process of a place; each pause needs one `resume`."""
        assert place.process is not None
        place.pauses += 1
        place.process.pause()

    def resume(self, place: GatewayPlace, life: int) -> None:
        """Continue after a pause, unless the process was killed meanwhile."""
        if place.lives == life and place.process is not None and place.pauses:
            place.pauses -= 1
            if not place.pauses:
                place.process.resume()

    def look(self) -> list[GatewayPlace]:
        """Return the places whose processes have ended by themselves, which are vacated."""
        ended = []
        for place in self.places:
            if place.process is None or place.process.status is None:
                continue
            status = place.process.status
            was_told = place.is_ending and status == -signal.SIGTERM  # before it could listen
            if status != 0 and not was_told and self.is_store_up:
                log = self.log_path(place.number, place.lives - 1).read_text(errors="replace")
                tail = "\n".join(log.splitlines()[-8:])
                self.failures.append(f"gateway {place.number} ended with {status}:\n{tail}")
            self._vacate(place)
            ended.append(place)
        return ended

    def close(self) -> None:
        """End all processes."""
        for place in self.places:
            if place.process is not None:
                self.kill(place)

    def error_lines(self) -> list[str]:
        """Return the lines of the logs that tell of errors nobody has foreseen, once each."""
        found: dict[str, None] = {}
        for path in sorted(self._folder.glob("gateway-*.log")):
            lines = path.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines):
                if line.startswith("Traceback") and number:
                    end = next(
                        (n for n in range(number + 1, len(lines)) if not lines[n].startswith(" ")),
                        len(lines) - 1,
                    )
                    found[f"{path.name}: {lines[number - 1]} … {lines[end - 2]} {lines[end]}"] = (
                        None
                    )
        return list(found)

    def _vacate(self, place: GatewayPlace) -> None:
        assert place.process is not None
        self._free.append(place.process.port)
        place.process = None
        place.pauses = 0
        place.is_ending = False
