"""`Autoscaler`: decides from the loads of gateways how many there are to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.errors import InvalidConfigurationError

_IDLE_SHARE: Final = 0.5
"""The low mark as a part of the high one.

A gateway ends only if the others, with its load, stay below the low mark. So the end of one never
brings the others to the high mark, and the start of one never brings all to the low one.
"""

_MAX_GAP_MS: Final = 10_000.0
"""Time without loads after which the loads before it count no more."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """The rules by which the number of gateways changes, after Spark's dynamic allocation.

    Attributes:
        min_gateways: the number of gateways at the start, and at least.
        max_gateways: the largest number of gateways.
        busy_load: the mean load of all gateways, in cores, at which there are too few.
        busy_timeout_ms: the time that all loads have to be that high before one is started
            (Spark's ``schedulerBacklogTimeout``).
        idle_timeout_ms: the time that one has to be superfluous before it ends (Spark's
            ``executorIdleTimeout``).
    """

    min_gateways: int
    max_gateways: int
    busy_load: float = 0.7
    busy_timeout_ms: float = 20_000.0
    idle_timeout_ms: float = 60_000.0

    def __post_init__(self) -> None:
        if self.max_gateways < self.min_gateways:
            raise InvalidConfigurationError(
                f"--max-gateways is {self.max_gateways}, less than --gateways, which is "
                f"{self.min_gateways}; give a number that is at least as large"
            )

    @property
    def idle_load(self) -> float:
        """The mean load, in cores, below which the others stay when a gateway ends."""
        return self.busy_load * _IDLE_SHARE


@dataclass(frozen=True, slots=True)
class GatewayLoads:
    """The loads of all gateways that serve, at one moment.

    Attributes:
        at_ms: the time by the driver's monotonic clock.
        loads: number of the gateway → cores that it uses. A gateway that has no executor, or does
            not tell its load, is not among them.
    """

    at_ms: float
    loads: Mapping[int, float]

    @property
    def total(self) -> float:
        """The cores that all use."""
        return sum(self.loads.values())


def decide(policy: ScalingPolicy, count: int, history: Sequence[GatewayLoads]) -> int:
    """Return the number of gateways to have: ``count``, one more, or one fewer.

    Gateways have the numbers from 0 on, and the one with the largest number is the next to end.

    Args:
        policy: the rules.
        count: the number of gateways that there are to be so far.
        history: the loads since that number last changed, oldest first.
    """

    def is_busy(at: GatewayLoads) -> bool:
        serves_all = all(number in at.loads for number in range(count))
        return serves_all and at.total / count >= policy.busy_load

    def is_idle(at: GatewayLoads) -> bool:
        left = sum(number in at.loads for number in range(count - 1))
        return bool(left) and at.total / left < policy.idle_load

    if count < policy.max_gateways and _lasts(history, policy.busy_timeout_ms, is_busy):
        return count + 1
    if count > policy.min_gateways and _lasts(history, policy.idle_timeout_ms, is_idle):
        return count - 1
    return count


def _lasts(
    history: Sequence[GatewayLoads], for_ms: float, holds: Callable[[GatewayLoads], bool]
) -> bool:
    """Return whether something holds at the end of a history, and has for a time."""
    for each in reversed(history):
        if not holds(each):
            return False
        if history[-1].at_ms - each.at_ms >= for_ms:
            return True
    return False


class Autoscaler:
    """The loads since the last change, and the number of gateways that follows from them.

    Each change needs loads of a whole timeout after the one before it: this is the pause in which
    clients learn of a new gateway.

    Attributes:
        policy: the rules.
        count: the number of gateways that there are to be.
    """

    def __init__(self, policy: ScalingPolicy) -> None:
        """Begin with the smallest number of gateways."""
        self.policy = policy
        self.count = policy.min_gateways
        self._history: list[GatewayLoads] = []

    def observe(self, loads: GatewayLoads) -> int:
        """Take the loads of a moment, and return the number of gateways to have.

        Args:
            loads: the loads, later than those before.
        """
        if self._history and loads.at_ms - self._history[-1].at_ms > _MAX_GAP_MS:
            self._history.clear()  # the driver stood still
        self._history.append(loads)
        found = decide(self.policy, self.count, self._history)
        if found != self.count:
            self.count = found
            self._history.clear()
        self._forget(loads.at_ms)
        return found

    def _forget(self, now_ms: float) -> None:
        """Drop the loads that no timeout reaches."""
        longest_ms = max(self.policy.busy_timeout_ms, self.policy.idle_timeout_ms)
        while len(self._history) > 1 and now_ms - self._history[1].at_ms >= longest_ms:
            del self._history[0]
