"""`RegistryMember`: keeps one gateway in the registry, and removes gateways that stopped counting.

No clocks are compared. A gateway shows life by a counter; the others measure on their own monotonic
clocks how long it stays the same, and remove it by a conditional append, so that all gateways learn
of it in the same place of one log.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_log.coordinator import (
    GATEWAY_REGISTRY,
    GatewayRegistry,
    GatewayRegistryLog,
    HeartbeatMonitor,
    HeartbeatWriter,
    RegisteredGateway,
    gateway_heartbeats,
)
from spark_log.util import random_id

if TYPE_CHECKING:
    from spark_log.cluster import Cluster
    from spark_log.config import GatewayConfig

_log = logging.getLogger(__name__)


class RegistryMember:
    """One gateway's membership in the registry. Safe to use from several threads.

    Attributes:
        registry: the registry as it was read last.
        gateway: this gateway as it is registered, or was; its id is -1 before `join`.
    """

    def __init__(
        self, cluster: Cluster, config: GatewayConfig, *, host: str, port: int, version: str = ""
    ) -> None:
        """Return the membership of a gateway that has not joined yet.

        Args:
            cluster: the opened root.
            config: the gateway's settings.
            host: the host that clients connect to.
            port: the port that clients connect to.
            version: the version of spark-log, for others.
        """
        self.registry = GatewayRegistry()
        self.gateway = RegisteredGateway(
            config.broker_id,
            random_id(),
            host,
            port,
            config.broker_rack,
            version=version,
            session_timeout_ms=config.broker_session_timeout_ms,
        )
        self._config = config
        self._clock = cluster.clock
        self._root = cluster.root
        self._log = GatewayRegistryLog(cluster.store, GATEWAY_REGISTRY, cluster.clock)
        self._heartbeats = gateway_heartbeats(cluster.store, cluster.suppressed)
        self._monitor = HeartbeatMonitor(self._heartbeats, cluster.clock)
        self._writer: HeartbeatWriter | None = None
        self._joined_ms = 0.0
        self._has_left = False
        self._lock = threading.Lock()

    @property
    def is_known_alive(self) -> bool:
        """Whether no other gateway can have removed this one yet, unless it has left.

        A process that stood still, or whose storage did not answer, may have been removed, and
        others may do its work: this is false until it has shown life and read the registry again.
        """
        writer = self._writer
        if self._has_left or writer is None:
            return False
        timeouts_ms = (each.session_timeout_ms for each in self.registry.gateways)
        timeout_ms = min(timeouts_ms, default=self._config.broker_session_timeout_ms)
        return self._clock.monotonic_ms() - writer.shown_ms < timeout_ms

    def join(self) -> RegisteredGateway:
        """Register; return this gateway with its id.

        Raises:
            DuplicateBrokerRegistrationError: the id belongs to another gateway.
            StorageError: the root cannot be read or written.
        """
        with self._lock:
            self._register()
            return self.gateway

    def tick(self) -> GatewayRegistry:
        """Show life, read the registry, and remove gateways that stopped; return the registry.

        To be called about every ``broker.heartbeat.interval.ms``.

        Raises:
            StorageError: the root cannot be read or written.
        """
        with self._lock:
            if self._has_left or self._writer is None:
                return self.registry
            now_ms = self._clock.monotonic_ms()
            self._writer.beat_if_due(self.gateway.heartbeat_name, now_ms)
            self._log.replay()
            own = self._log.state.incarnation(self.gateway.incarnation_id)
            if own is None:
                _log.warning(
                    "%s: gateway %d was removed from the registry, because its signs of life did "
                    "not arrive within broker.session.timeout.ms; it joins again",
                    self._root,
                    self.gateway.gateway_id,
                )
                self.gateway = replace(self.gateway, incarnation_id=random_id(), is_active=False)
                self._register()
            else:
                self.gateway = own
                self._remove_silent()
                self._activate_if_due(now_ms)
            self.registry = self._log.state
            return self.registry

    def leave(self) -> None:
        """Remove this gateway; others take its partitions and groups at once.

        Raises:
            StorageError: the root cannot be read or written; the others remove it later.
        """
        with self._lock:
            self._has_left = True
            incarnation_id = self.gateway.incarnation_id
            self.registry = self._log.commit(
                lambda registry: registry.remove("unregister", [incarnation_id])
            )
            self._heartbeats.forget([self.gateway.heartbeat_name])

    def _register(self) -> None:
        now_ms = self._joined_ms = self._clock.monotonic_ms()
        wanted = replace(self.gateway, gateway_id=self._config.broker_id)
        self.registry = self._log.commit(lambda registry: registry.register(wanted))
        found = self.registry.incarnation(wanted.incarnation_id)
        self.gateway = found or wanted  # it may be removed already: then `tick` registers it again
        self._writer = HeartbeatWriter(
            self._heartbeats,
            f"gateway {self.gateway.gateway_id}",
            self._clock,
            self._config.broker_heartbeat_interval_ms,
        )
        self._writer.beat_if_due(self.gateway.heartbeat_name, now_ms)
        _log.info(
            "%s: gateway %d at %s:%d joined the registry",
            self._root,
            self.gateway.gateway_id,
            self.gateway.host,
            self.gateway.port,
        )

    def _remove_silent(self) -> None:
        others = {
            each.heartbeat_name: each
            for each in self._log.state.gateways
            if each.incarnation_id != self.gateway.incarnation_id
        }
        timeout_ms = self._config.broker_session_timeout_ms
        expired = self._monitor.expired_members(dict.fromkeys(others, timeout_ms))
        if not expired:
            return
        ids = [others[name].incarnation_id for name in expired]
        _log.warning(
            "%s: gateways %s gave no sign of life for broker.session.timeout.ms, and are removed",
            self._root,
            ", ".join(f"{others[name].gateway_id}" for name in sorted(expired)),
        )
        self._log.commit(lambda registry: registry.remove("expire", ids))
        self._heartbeats.forget(expired)

    def _activate_if_due(self, now_ms: float) -> None:
        """Take partitions and groups after the time of trial, or at once if nobody else does."""
        if self.gateway.is_active:
            return
        is_proven = now_ms - self._joined_ms >= self._config.broker_join_delay_ms
        if is_proven or not self._log.state.active:
            incarnation_id = self.gateway.incarnation_id
            self._log.commit(lambda registry: registry.activate(incarnation_id))
            self.gateway = self._log.state.incarnation(incarnation_id) or self.gateway
