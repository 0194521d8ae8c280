"""`Client`: a client on a thread of its own, which notes its operations."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.operation_notes import OperationNotes

SETTLE_S = 180
"""Maximum time for anything to come to rest when the faults are over."""

REQUEST_TIMEOUT_MS = 5_000
"""Timeout of the clients' requests: gateways stand still for longer than that."""

DELIVERY_TIMEOUT_MS = 600_000
"""No record is given up: each is acknowledged in the end."""


@dataclass(frozen=True)
class Place:
    """The facts that all clients of a campaign know.

    Attributes:
        root, storage_options: the root.
        addresses: all addresses at which a gateway may listen, now or later.
        notes: directory of the histories.
        seed: the seed of the campaign.
        rate: records per second of each producer.
    """

    root: str
    storage_options: dict[str, str] | None
    addresses: tuple[str, ...]
    notes: Path
    seed: int
    rate: float = 20.0

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)


@dataclass
class Client:
    """One client. Subclasses have its work in `run`.

    Attributes:
        place: what all clients know.
        name: its name, which is also that of its history.
        failures: what must not happen to it, and did.
    """

    place: Place
    name: str
    failures: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.is_ending = threading.Event()
        self.chance = random.Random(f"{self.place.seed} {self.name}")
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def run(self, notes):
        raise NotImplementedError

    def fail(self, text):
        if text not in self.failures:
            self.failures.append(text)

    def end(self):
        """Let it finish, without waiting for it."""
        self.is_ending.set()

    def join(self, timeout_s=SETTLE_S):
        self.end()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001
            where = "".join(traceback.format_stack(frame)) if frame else ""
            self.fail(f"it did not end within {timeout_s} s:\n{where}")

    @property
    def is_alive(self):
        return self._thread.is_alive()

    def _run(self):
        with OperationNotes(str(self.place.notes / self.name)) as notes:
            try:
                self.run(notes)
            except Exception:
                self.fail(traceback.format_exc())
