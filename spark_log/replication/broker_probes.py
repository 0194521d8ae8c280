"""`BrokerProbes`: checks whether the brokers' roots answer, and measures how long they fail."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from spark_log.cluster import Cluster
from spark_log.errors import BrokerIdNotRegisteredError, SparkLogError
from spark_log.threads import LimitedCall

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerFailure:
    """A broker whose root does not answer.

    Attributes:
        failing_ms: the minimum time for which it has not answered.
        reason: the error of the last probe.
    """

    failing_ms: float
    reason: str


class BrokerProbes:
    """Reads ``meta.properties`` of all brokers' roots at the same time.

    A root that hangs blocks one thread, and does not delay the probes of other brokers.
    """

    def __init__(self, cluster: Cluster, timeout_ms: float) -> None:
        """Return the probes; no storage is accessed yet.

        Args:
            cluster: the opened root.
            timeout_ms: the maximum duration of one probe.
        """
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._calls: dict[int, LimitedCall[object]] = {}
        self._failing_since_ms: dict[int, float] = {}

    def probe(self, brokers: Collection[int]) -> dict[int, BrokerFailure]:
        """Probe brokers by id, and return those that fail."""
        clock = self._cluster.clock
        began_ms = clock.monotonic_ms()
        for broker_id in brokers:
            if broker_id not in self._calls:
                call = partial(self._cluster.check_broker, broker_id)
                self._calls[broker_id] = LimitedCall(call)
        failures = {}
        for broker_id in brokers:
            left_ms = self._timeout_ms - (clock.monotonic_ms() - began_ms)
            reason = self._result(broker_id, left_ms)
            if reason is None:
                if self._failing_since_ms.pop(broker_id, None) is not None:
                    _log.info("broker %d: its root answers again", broker_id)
                continue
            if broker_id not in self._failing_since_ms:
                _log.info("broker %d: its root fails: %s", broker_id, reason)
            since_ms = self._failing_since_ms.setdefault(broker_id, began_ms)
            failures[broker_id] = BrokerFailure(clock.monotonic_ms() - since_ms, reason)
        for broker_id in self._failing_since_ms.keys() - set(brokers):
            del self._failing_since_ms[broker_id]
        return failures

    def _result(self, broker_id: int, left_ms: float) -> str | None:
        """Return the reason why a broker fails; None if it answers."""
        call = self._calls[broker_id]
        if not call.wait(max(0.0, left_ms) / 1000):
            return f"its root does not answer within {self._timeout_ms:.0f} ms"
        del self._calls[broker_id]
        try:
            call.result()
        except BrokerIdNotRegisteredError:
            return None  # unregistered meanwhile
        except SparkLogError as error:
            return str(error)
        return None
