"""The rates of faults of a simulation's storage and processes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

DELETE_DELAY_MS = 1000
"""``file.delete.delay.ms`` of every simulation; all other times are relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one simulation. Rates are probabilities per step or per call.

    Attributes:
        latency_ms: mean time of a call of the store, there and back.
        pause: rate of pauses of up to four delete delays (a stopped process).
        crash: rate of crashes; the actor then starts again with empty memory.
        failed: rate of calls that have no effect and raise an error.
        lost_request: rate of puts that have no effect (yet), and whose answer is lost.
        lost_answer: rate of calls that take effect, and whose answer is lost.
        resent: rate of puts that the client sends twice, and answers with the second result.
        late_copy: rate of puts and deletes of which a second copy is delivered much later.
        torn_listing: rate of listings that miss new files, and show files deleted meanwhile.
        slow_listing: rate of listings that take nearly as long as a usable listing may.
    """

    latency_ms: float
    pause: float
    crash: float
    failed: float
    lost_request: float
    lost_answer: float
    resent: float
    late_copy: float
    torn_listing: float
    slow_listing: float = 0.0

    def without_faults(self) -> Self:
        """Return these conditions without faults: only the latency stays."""
        return replace(
            self,
            pause=0.0,
            crash=0.0,
            failed=0.0,
            lost_request=0.0,
            lost_answer=0.0,
            resent=0.0,
            late_copy=0.0,
            torn_listing=0.0,
            slow_listing=0.0,
        )

    def __str__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return " ".join(f"{name}={value:g}" for name, value in values if value)
