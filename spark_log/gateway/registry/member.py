"""`RegistryMember`: keeps one gateway in the registry, and removes gateways that stopped counting.

No clocks are compared. A gateway shows life by a counter; the others measure on their own monotonic
clocks how long it stays the same, and remove it by a conditional append, so that all gateways learn
of it in the same place of one log.
"""

from __future__ import annotations

import logging
import math
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
        term: a number that changes when another gateway may have coordinated since what this one
            does: when the active gateways change, and after a time in which this one was not known
            to live. A request that arrived in an earlier term may be late.
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
        self.term = 0
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
        # The last sign of life that others had seen in time, or that a renewal has followed.
        self._confirmed_ms = -math.inf
        # While others may not know yet that it is active: these, by incarnation, since when it is,
        # and the offset to which they have to read the registry.
        self._awaited: dict[str, RegisteredGateway] = {}
        self._active_ms = 0.0
        self._active_offset = 0
        self._has_left = False
        self._lock = threading.Lock()

    @property
    def may_coordinate(self) -> bool:
        """Whether it may do what the registry gives to it: it is known to live, and others know it.

        When a gateway becomes active, others that have not read this yet still do what is its part
        now. They say in their signs of life to where they have read.
        """
        return self.is_known_alive and not self._awaited

    @property
    def is_awaiting_others(self) -> bool:
        """Whether it will coordinate as soon as the others have read that it is active."""
        return self.is_known_alive and bool(self._awaited)

    @property
    def is_known_alive(self) -> bool:
        """Whether no other gateway can have removed this one yet, unless it has left.

        A process that stood still, or whose storage did not answer, may have been removed, and
        others may do its work: this is false until it has shown life, and has written so to the
        registry. The removal by a gateway that has not seen this sign yet then comes too late.
        """
        if self._has_left:
            return False
        timeouts_ms = (each.session_timeout_ms for each in self.registry.gateways)
        timeout_ms = min(timeouts_ms, default=self._config.broker_session_timeout_ms)
        return self._clock.monotonic_ms() - self._confirmed_ms < timeout_ms

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
            seen = self._log.replayed_offset
            self._writer.beat_if_due(self.gateway.heartbeat_name, now_ms, seen)
            was_alive = self.is_known_alive  # others have seen this sign in time
            shown_ms = self._writer.shown_ms
            self._log.replay()
            if not was_alive:
                self._renew()
            own = self._log.state.incarnation(self.gateway.incarnation_id)
            if own is None:
                _log.warning(
                    "%s: gateway %d was removed from the registry, because its signs of life did "
                    "not arrive within broker.session.timeout.ms; it joins again",
                    self._root,
                    self.gateway.gateway_id,
                )
                self.gateway = replace(self.gateway, incarnation_id=random_id(), is_active=False)
                self.term += 1
                self._register()
            else:
                self._follow(own, now_ms)
                if not was_alive or _ids(self._log.state) != _ids(self.registry):
                    self.term += 1
                self.registry = self._log.state
                self._confirmed_ms = shown_ms
            self._writer.beat_if_due(
                self.gateway.heartbeat_name,
                self._clock.monotonic_ms(),
                self._log.replayed_offset,
            )
            return self.registry

    def _renew(self) -> None:
        incarnation_id = self.gateway.incarnation_id
        self._log.commit(lambda registry: registry.renew(incarnation_id))

    def _follow(self, own: RegisteredGateway, now_ms: float) -> None:
        """Remove silent gateways, become active, and find out which others know it."""
        was_active = self.gateway.is_active
        self.gateway = own
        self._remove_silent()
        self._activate_if_due(now_ms)
        if self.gateway.is_active and not was_active:
            self._active_ms = self._clock.monotonic_ms()
            self._active_offset = self._log.replayed_offset
            incarnation_id = self.gateway.incarnation_id
            self._awaited = {
                each.incarnation_id: each
                for each in self._log.state.active
                if each.incarnation_id != incarnation_id
            }
        elif self._awaited:
            self._await_others()

    def _await_others(self) -> None:
        """Forget those that know that this gateway is active, or do nothing any more."""
        awaited = {
            key: each
            for key, each in self._awaited.items()
            if self._log.state.incarnation(key) is not None
            and self._heartbeats.seen(each.heartbeat_name) < self._active_offset
        }
        timeout_ms = max((each.session_timeout_ms for each in awaited.values()), default=0)
        if self._clock.monotonic_ms() - self._active_ms >= timeout_ms:
            awaited = {}  # whoever has read nothing for so long does nothing either
        if not awaited:
            _log.debug("%s: gateway %d coordinates", self._root, self.gateway.gateway_id)
        self._awaited = awaited

    def leave(self) -> None:
        """Remove this gateway; others take its partitions and groups at once.

        Raises:
            StorageError: the root cannot be read or written; the others remove it later.
        """
        with self._lock:
            self._has_left = True
            incarnation_id = self.gateway.incarnation_id
            self.registry = self._log.commit(lambda registry: registry.unregister(incarnation_id))
            self._heartbeats.forget([self.gateway.heartbeat_name])

    def _register(self) -> None:
        now_ms = self._joined_ms = self._clock.monotonic_ms()
        self._awaited = {}
        wanted = replace(self.gateway, gateway_id=self._config.broker_id)
        registry = self._log.commit(lambda registry: registry.register(wanted))
        found = registry.incarnation(wanted.incarnation_id)
        self.gateway = found or wanted  # it may be removed already: then `tick` registers it again
        self._writer = HeartbeatWriter(
            self._heartbeats,
            f"gateway {self.gateway.gateway_id}",
            self._clock,
            self._config.broker_heartbeat_interval_ms,
        )
        self._writer.beat_if_due(self.gateway.heartbeat_name, now_ms, self._log.replayed_offset)
        self.registry = registry
        self._confirmed_ms = self._writer.shown_ms
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
        # A gateway knows its own timeout, and not yet that of one that has just joined.
        own_ms = self._config.broker_session_timeout_ms
        expired = self._monitor.expired_members(
            {name: max(own_ms, each.session_timeout_ms) for name, each in others.items()}
        )
        if not expired:
            return
        looked_ms = self._clock.monotonic_ms()
        silent = [others[name] for name in expired]
        _log.warning(
            "%s: gateways %s gave no sign of life for broker.session.timeout.ms, and are removed",
            self._root,
            ", ".join(f"{others[name].gateway_id}" for name in sorted(expired)),
        )

        def is_recent() -> bool:
            """Return false if this process stood still since it looked: they may live again."""
            passed_ms = self._clock.monotonic_ms() - looked_ms
            return passed_ms < self._config.broker_heartbeat_interval_ms

        self._log.commit(lambda registry: registry.expire(silent) if is_recent() else None)
        left = {each.heartbeat_name for each in self._log.state.gateways}
        self._heartbeats.forget(expired - left)

    def _activate_if_due(self, now_ms: float) -> None:
        """Take partitions and groups after the time of trial, or at once if nobody else does."""
        if self.gateway.is_active:
            return
        is_proven = now_ms - self._joined_ms >= self._config.broker_join_delay_ms
        if is_proven or not self._log.state.active:
            incarnation_id = self.gateway.incarnation_id
            self._log.commit(lambda registry: registry.activate(incarnation_id))
            self.gateway = self._log.state.incarnation(incarnation_id) or self.gateway


def _ids(registry: GatewayRegistry) -> list[str]:
    """Return the incarnations that get partitions and groups."""
    return [each.incarnation_id for each in registry.active]
