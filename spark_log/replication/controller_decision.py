"""`ControllerDecision`: an action of a controller, with its reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ControllerDecision:
    """An action of a controller, with its reason.

    Attributes:
        action: the name of the action, such as ``fence broker``; one of a fixed set.
        reason: the reason of the action.
        topic: the partition's topic; None if the action concerns no single partition.
        partition: the number of the partition; None if the action concerns no single partition.
        broker: the id of the broker; None if the action concerns no broker.
    """

    action: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    def __str__(self) -> str:
        """Return the decision in one line."""
        where = "" if self.topic is None else f" of {self.topic}-{self.partition}"
        on = "" if self.broker is None else f" {self.broker}"
        return f"{self.action}{on}{where}: {self.reason}"

    def document(self) -> dict[str, Any]:
        """Return the decision for JSON, without the fields that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}
