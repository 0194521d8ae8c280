"""`Decision`: what a controller did, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """What a controller did, and why.

    Attributes:
        action: in a few words, such as ``fence broker``; one of a fixed set.
        reason: why.
        topic: the partition's topic; None if it concerns no single partition.
        partition: number of the partition; None if it concerns no single one.
        broker: id of the broker; None if it concerns none.
    """

    action: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    def __str__(self) -> str:
        """Return it in one line."""
        where = "" if self.topic is None else f" of {self.topic}-{self.partition}"
        on = "" if self.broker is None else f" {self.broker}"
        return f"{self.action}{on}{where}: {self.reason}"

    def document(self) -> dict[str, Any]:
        """Return it for JSON, without what it does not concern."""
        return {name: value for name, value in asdict(self).items() if value is not None}
