"""`Gateway`: what the handlers of requests share: the opened root, threads, settings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from spark_log.config import report_ignored_settings
from spark_log.coordinator import GatewayRegistry, RegisteredGateway
from spark_log.errors import SparkLogError
from spark_log.gateway.blocking_pool import BlockingPool
from spark_log.gateway.fetch_sessions import FetchSessions
from spark_log.gateway.groups import CommitOrder, ConsumerGroups, GroupCoordinators
from spark_log.gateway.partitions import Partitions
from spark_log.gateway.registry import RegistryMember, coordinator, leader, led_together
from spark_log.gateway.transactions import Transactions
from spark_log.metadata import GROUP_VERSION

if TYPE_CHECKING:
    from spark_log.admin import Admin
    from spark_log.cluster import Cluster
    from spark_log.config import GatewayConfig
    from spark_log.gateway.request import Api
    from spark_log.metadata import MetadataImage

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


class Gateway:
    """One gateway's view of the root that it serves; for one event loop.

    The event loop never reads or writes the log: everything that blocks goes through
    `run_blocking`.

    Attributes:
        config: the gateway's settings.
        cluster: the opened root.
        admin: an admin client of the root.
        apis: the APIs that the server answers, by key.
        transactions: the transactions of clients.
        partitions: the partitions that clients write and read.
        features: the finalized level of each feature of the cluster (KIP-584), for clients.
        groups: the groups of the classic protocol that this gateway coordinates.
        consumer_groups: the groups of the consumer protocol that this gateway coordinates.
        commit_order: the order of the members' commits.
        fetch_sessions: the fetch sessions of clients.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: Admin,
        config: GatewayConfig,
        *,
        apis: Mapping[int, Api],
    ) -> None:
        """Return a gateway; nothing is read yet.

        Args:
            cluster: the opened root; the caller closes it.
            admin: an admin client that uses ``cluster``.
            config: the settings.
            apis: the APIs that the server answers, by key.
        """
        self.config = config
        self.cluster = cluster
        self.apis = apis
        self.features: Mapping[str, int] = {"group.version": 1, "transaction.version": 2}
        self.admin = admin
        self._pool = BlockingPool(
            config.num_io_threads,
            name="spark-log-gateway",
            prepare=lambda: report_ignored_settings(_log_setting),
        )

        def finalize_feature() -> None:
            self.admin.update_features({GROUP_VERSION.name: 1})

        self.groups = GroupCoordinators(
            cluster,
            self.run_blocking,
            is_coordinator=self.is_coordinator,
            finalize_feature=finalize_feature,
        )
        self.consumer_groups = ConsumerGroups(
            cluster,
            self.run_blocking,
            is_coordinator=self.is_coordinator,
            finalize_feature=finalize_feature,
        )
        self.commit_order = CommitOrder()
        self._member: RegistryMember | None = None
        self._ticks: asyncio.Task[None] | None = None
        self._ticked = asyncio.Event()  # set by the next tick, which has another one
        self._leaders_of = GatewayRegistry()
        self._leaders: dict[tuple[str, int, str], RegisteredGateway] = {}
        self._racks: list[str] = []
        self.partitions = Partitions(
            cluster, config, self.run_blocking, run_short=self._pool.run_short
        )
        self.transactions = Transactions(cluster, self.partitions.marker_log)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)

    async def run_blocking(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a call that reads or writes the log, or raise its error."""
        return await self._pool.run(call, *args)

    async def image(self) -> MetadataImage:
        """Return the metadata, at most ``metadata.max.age.ms`` old.

        Raises:
            StorageError: the root cannot be read.
        """
        found = self.cluster.metadata.recent_image(self.config.metadata_max_age_ms)
        return found if found is not None else await self.run_blocking(self.cluster.image)

    def close(self, timeout_s: float = 5.0) -> None:
        """End the threads: wait for the merge and the calls that run, but no longer than a time.

        A thread in Arrow's code that calls Python when the interpreter ends aborts the process.

        Args:
            timeout_s: the maximum time to wait.
        """
        until_s = time.monotonic() + timeout_s
        self.partitions.close(timeout_s)
        if not self._pool.close(max(0.0, until_s - time.monotonic())):
            _log.info(
                "%s: the storage has not answered all calls of this gateway within %.0f s",
                self.cluster.root,
                timeout_s,
            )

    # --- the gateways of the root ----------------------------------------------------------------

    async def join(self, host: str, port: int, version: str = "") -> RegisteredGateway:
        """Register, and stay registered until `leave`; return this gateway with its id.

        Args:
            host: the host that clients connect to.
            port: the port that clients connect to.
            version: the version of spark-log, for others.

        Raises:
            DuplicateBrokerRegistrationError: ``broker.id`` belongs to another gateway.
            StorageError: the root cannot be read or written.
        """
        self._member = RegistryMember(
            self.cluster, self.config, host=host, port=port, version=version
        )
        found = await self.run_blocking(self._member.join)
        self._ticks = asyncio.get_running_loop().create_task(self._tick_for_ever())
        return found

    async def leave(self) -> None:
        """Leave the registry, so that clients are directed to others."""
        if self._member is None or self._ticks is None:
            return
        self._ticks.cancel()
        try:
            await self.run_blocking(self._member.leave)
        except SparkLogError as error:
            self.cluster.suppressed.add("gateway leave", self.cluster.root, error)
        self._ticked.set()

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.broker_heartbeat_interval_ms / 1000)
            await self.tick()

    async def tick(self) -> None:
        """Show life in the registry, and read it; see `RegistryMember.tick`."""
        assert self._member is not None
        try:
            await self.run_blocking(self._member.tick)
        except SparkLogError as error:
            self.cluster.suppressed.add("gateway heartbeat", self.cluster.root, error)
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    async def until_known(self) -> None:
        """Wait while this gateway has become active, and others may not know that yet.

        It coordinates nothing so long. That takes others a heartbeat, and no longer than their
        session timeout.
        """
        while self._member is not None and self._member.is_awaiting_others:
            await self._ticked.wait()

    @property
    def registered(self) -> RegisteredGateway:
        """This gateway, as clients know it."""
        assert self._member is not None
        return self._member.gateway

    @property
    def gateways(self) -> tuple[RegisteredGateway, ...]:
        """All gateways that clients can connect to, by id; this one is always among them."""
        assert self._member is not None
        found = self._member.registry.gateways
        own = self.registered
        if any(each.gateway_id == own.gateway_id for each in found):
            return found
        return tuple(sorted((*found, own), key=lambda each: each.gateway_id))

    def leader(self, topic_id: str, partition: int, rack: str = "") -> RegisteredGateway:
        """Return the gateway that clients of a rack find a partition at.

        Args:
            topic_id: the topic's id.
            partition: the partition's number.
            rack: the clients' rack; empty for none.
        """
        self._follow_registry()
        active = self._leaders_of.active or (self.registered,)
        if rack and rack not in self._racks:
            rack = ""
        topic = self.cluster.metadata.known_image().find_by_id(topic_id)
        stripes = 0 if topic is None else len(topic.stripes)
        key = topic_id, led_together(partition, stripes, len(active)), rack
        found = self._leaders.get(key)
        if found is None:
            found = self._leaders[key] = leader(active, *key)
        return found

    def _follow_registry(self) -> None:
        assert self._member is not None
        if self._leaders_of is not self._member.registry:
            self._leaders_of = self._member.registry
            self._leaders.clear()
            self._racks = sorted({each.rack for each in self._leaders_of.active if each.rack})

    def preferred_read_replica(
        self, topic_id: str, partition: int, rack: str
    ) -> RegisteredGateway | None:
        """Return the gateway of a client's rack, to read from; None to read from this one.

        Args:
            topic_id: the topic's id.
            partition: the partition's number.
            rack: the client's rack; empty for none.
        """
        if not rack or rack == self.registered.rack:
            return None
        found = self.leader(topic_id, partition, rack)
        return found if found.rack == rack else None

    def replicas(self, topic_id: str, partition: int, rack: str = "") -> list[int]:
        """Return the ids of the gateways that clients may read a partition from.

        The first one is the partition's leader for clients of the rack. Each other rack has one:
        clients read only from gateways among the replicas (KIP-392).

        Args:
            topic_id: the topic's id.
            partition: the partition's number.
            rack: the client's rack; empty for none.
        """
        found = [self.leader(topic_id, partition, rack).gateway_id]
        self._follow_registry()
        for each in self._racks:
            gateway_id = self.leader(topic_id, partition, each).gateway_id
            if gateway_id not in found:
                found.append(gateway_id)
        return found

    def coordinator(self, kind: str, name: str) -> RegisteredGateway:
        """Return the gateway that coordinates a group or a transactional id.

        Args:
            kind: ``group`` or ``transaction``.
            name: the group's id, or the transactional id.
        """
        assert self._member is not None
        return coordinator(self._member.registry.active or (self.registered,), kind, name)

    @property
    def is_known_alive(self) -> bool:
        """Whether the others still count on this gateway, as far as it can know."""
        return self._member is not None and self._member.is_known_alive

    @property
    def term(self) -> int:
        """A number that changes when others may have coordinated (`RegistryMember.term`)."""
        return 0 if self._member is None else self._member.term

    def has_coordinated(self, term: int, name: str, kind: str = "group") -> bool:
        """Return whether clients were sent to this gateway since a `term`. Safe on any thread.

        Args:
            term: the term in which a request arrived that would be late in another one.
            name: the group's id, or the transactional id.
            kind: ``group`` or ``transaction``.
        """
        return self.is_coordinator(name, kind) and self.term == term

    def is_coordinator(self, name: str, kind: str = "group") -> bool:
        """Return whether clients are sent to this gateway for a group. Safe on any thread.

        Args:
            name: the group's id, or a transactional id.
            kind: ``group`` or ``transaction``.
        """
        member = self._member
        if member is None or not (member.may_coordinate and member.gateway.is_active):
            return False
        found = self.coordinator(kind, name)
        return found.incarnation_id == self.registered.incarnation_id


def _log_setting(sentence: str) -> None:
    _log.debug("a client's setting has no effect: %s", sentence)
