"""The log of the gateways of a root, by conditional appends.

On storage: ``__gateways/registry/`` is the directory of the log (`StateLog`), and
``__gateways/heartbeats/`` has a counter of each gateway.
"""

from __future__ import annotations

from typing import ClassVar, Final

from spark_log.gateway.registry.registry import GatewaysRecord, Registry, from_json
from spark_log.log import StateLog
from spark_log.storage import GATEWAYS_DIRECTORY

REGISTRY: Final = "registry"
"""The name of the log: a root has one."""

HEARTBEATS_DIRECTORY: Final = f"{GATEWAYS_DIRECTORY}/heartbeats"


class RegistryLog(StateLog[Registry, GatewaysRecord]):
    """Reads and changes the registry. For one thread at a time."""

    parent_directory: ClassVar[str] = GATEWAYS_DIRECTORY
    topic_id: ClassVar[str] = "AAAAAAAAAAAAAAAAAAAABA"

    @staticmethod
    def _initial(name: str) -> Registry:
        return Registry()

    @staticmethod
    def _parse(value: bytes) -> GatewaysRecord:
        return from_json(value)
