"""The log of the gateways of a root, by conditional appends.

On storage: ``__gateways/registry/`` is the directory of the log (`StateLog`), and
``__gateways/heartbeats/`` has a counter of each gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from spark_log.coordinator.gateways.registry import (
    GatewayRegistry,
    GatewaysRecord,
    RegisteredGateway,
    from_json,
)
from spark_log.coordinator.group import Heartbeats
from spark_log.log import StateLog
from spark_log.storage import GATEWAYS_DIRECTORY, Store, file_name
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors

GATEWAY_REGISTRY: Final = "registry"
"""The name of the log: a root has one."""

_HEARTBEATS_DIRECTORY: Final = f"{GATEWAYS_DIRECTORY}/heartbeats"


_MIN_SILENCE_MS: Final = 60_000
"""Least silence that is shown as such: the clock of the storage may differ from the observer's."""


class GatewayRegistryLog(StateLog[GatewayRegistry, GatewaysRecord]):
    """Reads and changes the registry. For one thread at a time."""

    parent_directory: ClassVar[str] = GATEWAYS_DIRECTORY
    topic_id: ClassVar[str] = "AAAAAAAAAAAAAAAAAAAABA"

    @staticmethod
    def _initial(name: str) -> GatewayRegistry:
        return GatewayRegistry()

    @staticmethod
    def _parse(value: bytes) -> GatewaysRecord:
        return from_json(value)


@dataclass(frozen=True, slots=True)
class GatewayLife:
    """A registered gateway, and its last sign of life.

    Attributes:
        gateway: the gateway.
        counter: the value of its counter; 0 if it has none.
        beat_us: the time of its last sign of life by the storage's clock, in microseconds since the
            epoch; 0 without one. It is shown to users; no gateway is removed by it.
    """

    gateway: RegisteredGateway
    counter: int
    beat_us: int

    def silent_us(self, now_us: int) -> int:
        """Return the time since the last sign of life, in microseconds.

        Args:
            now_us: the present time, microseconds since the epoch.
        """
        return max(0, now_us - self.beat_us)

    def is_live(self, now_us: int) -> bool:
        """Return whether the last sign of life is recent: within its session timeout, or a minute.

        Args:
            now_us: the present time, microseconds since the epoch, by a clock that may differ a
                little from the storage's.
        """
        timeout_ms = max(self.gateway.session_timeout_ms, _MIN_SILENCE_MS)
        return self.silent_us(now_us) <= timeout_ms * 1000


def gateway_heartbeats(store: Store, suppressed: SuppressedErrors = IN_PROCESS) -> Heartbeats:
    """Return the counters of the gateways of a root; nothing is read yet.

    Args:
        store: the store of the root.
        suppressed: the counts of failures that do not stop a caller.
    """
    return Heartbeats(store, _HEARTBEATS_DIRECTORY, suppressed)


def read_gateways(store: Store, clock: Clock) -> tuple[GatewayLife, ...]:
    """Return the registered gateways with their last signs of life, by id; changes nothing.

    Args:
        store: the store of the root.
        clock: the clock whose monotonic time decides how long a listing is valid.

    Raises:
        CorruptRecordError: the registry is damaged.
        StorageError: the registry or a counter cannot be read.
    """
    gateways = GatewayRegistryLog.view(store, GATEWAY_REGISTRY, clock).state.gateways
    if not gateways:
        return ()
    heartbeats = gateway_heartbeats(store)
    beats_us = {each.name: each.modified_us for each in heartbeats.list()}
    return tuple(
        GatewayLife(
            each,
            heartbeats.counter(each.heartbeat_name),
            beats_us.get(file_name(each.heartbeat_name), 0),
        )
        for each in gateways
    )
