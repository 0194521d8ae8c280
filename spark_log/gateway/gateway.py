"""`Gateway`: what the handlers of requests share: the opened root, threads, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from spark_log.gateway.blocking_pool import BlockingPool
from spark_log.gateway.partitions import Partitions
from spark_log.util import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from spark_log.admin import Admin
    from spark_log.cluster import Cluster
    from spark_log.config import GatewayConfig
    from spark_log.gateway.request import Api

_Result = TypeVar("_Result")


class Gateway:
    """One gateway's view of the root that it serves; for one event loop.

    The event loop never reads or writes the log: everything that blocks goes through
    `run_blocking`.

    Attributes:
        config: the gateway's settings.
        cluster: the opened root.
        admin: an admin client of the root.
        apis: the APIs that the server answers, by key.
        partitions: the partitions that clients write and read.
        features: the finalized level of each feature of the cluster (KIP-584), for clients.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: Admin,
        config: GatewayConfig,
        *,
        apis: Mapping[int, Api],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return a gateway; nothing is read yet.

        Args:
            cluster: the opened root; the caller closes it.
            admin: an admin client that uses ``cluster``.
            config: the settings.
            apis: the APIs that the server answers, by key.
            clock: measures time.
        """
        self.config = config
        self.cluster = cluster
        self.apis = apis
        self.features: Mapping[str, int] = {}
        self.clock = clock
        self.admin = admin
        self._pool = BlockingPool(config.num_io_threads, name="spark-log-gateway")
        self.partitions = Partitions(cluster, config, self.run_blocking)

    async def run_blocking(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a call that reads or writes the log, or raise its error."""
        return await self._pool.run(call, *args)

    def close(self) -> None:
        """End the threads."""
        self.partitions.close()
        self._pool.close()
