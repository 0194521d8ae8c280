"""`Workload`: what a campaign asks of clients that may be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_log import Admin
from spark_log.testing.history import Operation
from tests.faults.schedule import Schedule
from tests.gateway.campaign.client import Place
from tests.gateway.campaign.producers import EventProducer

Blow = Callable[[random.Random, Schedule], bool]
"""A fault; returns false if there is nothing to strike now."""


class Workload:
    """Clients, from `prepare` to `close`. What a subclass does not need, it leaves as it is here.

    Args:
        place: the facts that all clients know.
        folder: an existing folder of its own.
        say: called with a line for each event.

    Attributes:
        name: the name in the report.
        failures: what must not happen, and did.
    """

    name: str

    def __init__(self, place: Place, folder: Path, say: Callable[[str], None]) -> None:
        self.place = place
        self.folder = folder
        self.say = say
        self.failures: list[str] = []

    def prepare(self, admin: Admin) -> None:
        """Create what it needs in the root, before any gateway starts."""

    def producers(self) -> list[EventProducer]:
        """Return the producers that work for it, on threads."""
        return []

    def start(self) -> None:
        """Start its processes; gateways listen."""

    @property
    def has_begun(self) -> bool:
        """Whether faults may begin."""
        return True

    def look(self) -> None:
        """Start a process in the place of each that has ended."""

    def blows(self) -> Mapping[str, tuple[int, Blow]]:
        """Return its faults by name: the relative rate, and the function."""
        return {}

    def resume(self) -> None:
        """Continue all that is paused: the faults are over."""

    def end_input(self) -> None:
        """Send no more."""

    def left(self) -> int:
        """Return the number of results that are still to come."""
        return 0

    def end(self) -> None:
        """End its processes in order."""

    def close(self) -> None:
        """End at once what still runs."""

    def operations(self) -> Iterator[Operation]:
        """Yield the history of its clients, as far as they have none in the notes."""
        return iter(())

    def findings(self) -> list[str]:
        """Return what is wrong in the results, when all has ended."""
        return []

    def figures(self) -> dict[str, Any]:
        """Return figures for the report."""
        return {}
