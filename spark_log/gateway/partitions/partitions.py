"""`Partitions`: all partitions of a gateway, opened when a client first asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from spark_log.cluster import Cluster
from spark_log.config import GatewayConfig, TopicConfig
from spark_log.consumer import resolver
from spark_log.gateway.partitions.append_queue import RunBlocking
from spark_log.gateway.partitions.client_quotas import ClientQuotas
from spark_log.gateway.partitions.log_cursors import LogCursors
from spark_log.gateway.partitions.partition import GatewayPartition
from spark_log.gateway.partitions.partition_logs import PartitionLogs
from spark_log.gateway.partitions.stripe import GatewayStripe
from spark_log.gateway.partitions.tail_cache import CacheBudget
from spark_log.gateway.partitions.tail_watch import TailWatch
from spark_log.log import ProbeInterval
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.threads import MergeThread
from spark_log.transaction import TopicIdPartition


class Partitions:
    """The partitions of a gateway, for one event loop.

    Attributes:
        quotas: the quotas of clients.
        tail_watch: probes for the appends of others.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: GatewayConfig,
        run_blocking: RunBlocking,
        *,
        run_short: RunBlocking | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            cluster: the opened root.
            config: the gateway's settings.
            run_blocking: runs a call on a thread of the gateway.
            run_short: runs a call that waits for nothing but the processor; by default as others.
        """
        self._cluster = cluster
        self._config = config
        self._run_blocking = run_blocking
        self._run_short = run_short
        self._clock = cluster.clock
        self._budget = CacheBudget(config.tail_cache_bytes)
        # The topic and its configs as they were found last, and the partition.
        self._opened: dict[tuple[str, int], tuple[TopicImage, TopicConfig, GatewayPartition]] = {}
        self._stripes: dict[tuple[str, int], GatewayStripe] = {}  # by topic id and number
        self._cursors = LogCursors()
        self._known_image: MetadataImage | None = None
        self._refreshing: asyncio.Future[MetadataImage] | None = None
        self._begun_refreshes = self._ended_refreshes = 0
        self._in_order = asyncio.Lock()
        self._waiting = 0
        self._merges = MergeThread("spark-log-gateway-merges")
        self.is_draining = False
        self.quotas = ClientQuotas()
        self.tail_watch = TailWatch(
            run_blocking,
            self.now_ms,
            cluster.suppressed,
            ProbeInterval.of(cluster.store),
            is_local=cluster.store.is_local,
        )

    @property
    def opened(self) -> int:
        """The number of opened partitions."""
        return len(self._opened)

    def now_ms(self) -> float:
        """Return monotonic time in milliseconds."""
        return self._clock.monotonic_ms()

    def drain(self) -> None:
        """Let fetches wait for no more records: those that wait answer with what they have."""
        self.is_draining = True
        for *_, partition in self._opened.values():
            partition.on_changed()

    def close(self, timeout_s: float = 0.0) -> None:
        """End the probes and the merges.

        Args:
            timeout_s: the maximum time to wait for a merge that runs.
        """
        self.tail_watch.close()
        self._merges.close(timeout_s)

    # --- metadata --------------------------------------------------------------------------------

    @property
    def known_image(self) -> MetadataImage:
        """The metadata as they are known, without a request. They are read again beside that."""
        metadata = self._cluster.metadata
        if metadata.recent_image(self._config.metadata_max_age_ms) is None:
            self._refresh()
        image = metadata.known_image()
        if image is not self._known_image:
            self._known_image = image
            self._drop_deleted(image)
        return image

    def _drop_deleted(self, image: MetadataImage) -> None:
        """Free the memory of partitions whose topics were deleted."""
        for topic_id, number in [key for key in self._opened if not image.find_by_id(key[0])]:
            self._opened.pop((topic_id, number))[2].close()
        for topic_id, number in [key for key in self._stripes if not image.find_by_id(key[0])]:
            del self._stripes[topic_id, number]

    async def refresh(self) -> MetadataImage:
        """Read the metadata. Calls at the same time share it, and return in their order."""
        return await asyncio.shield(self._refresh())

    def _refresh(self) -> asyncio.Future[MetadataImage]:
        if self._refreshing is None:
            self._begun_refreshes += 1
            self._refreshing = asyncio.ensure_future(self._run_blocking(self._cluster.image))
            self._refreshing.add_done_callback(self._on_refreshed)
        return self._refreshing

    def _on_refreshed(self, future: asyncio.Future[MetadataImage]) -> None:
        self._refreshing = None
        self._ended_refreshes = self._begun_refreshes
        if not future.cancelled():
            future.exception()  # those who wait raise it

    async def image_in_order(self, is_complete: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Return metadata in which something is found, unless it does not exist.

        Callers return in the order of their calls, also if some of them wait until the metadata are
        read again: what a caller then does before its first await is done in the order of requests.

        Args:
            is_complete: whether an image has what the request needs.

        Raises:
            StorageError: the metadata cannot be read.
        """
        image = self.known_image
        if not self._waiting and is_complete(image):
            return image
        needed = self._begun_refreshes + 1
        self._waiting += 1
        try:
            async with self._in_order:
                image = self.known_image
                # A refresh that began after this call knows whatever existed then.
                while not is_complete(image) and self._ended_refreshes < needed:
                    image = await self.refresh()
                return image
        finally:
            self._waiting -= 1

    # --- partitions ------------------------------------------------------------------------------

    def marker_log(self, partition: TopicIdPartition) -> GatewayPartition | None:
        """Return a partition that this gateway has appended to; None without one. On any thread.

        Other partitions have another gateway that appends to them. Their logs are opened for their
        markers: an end that this gateway knew from an earlier marker would be old each time.
        """
        found = self._opened.get((partition.topic_id, partition.partition))
        if found is None:
            return None
        stripe, logs = found[2].stripe, found[2].logs
        return found[2] if (logs if stripe is None else stripe).has_appended else None

    def get(self, topic: TopicImage, partition: int) -> GatewayPartition | None:
        """Return a partition; None if the topic does not have it."""
        if partition not in topic.partitions:
            return None
        found = self._opened.get((topic.topic_id, partition))
        if found is not None and found[0] is topic:
            return found[2]
        config = topic.config()
        if found is not None and found[1] == config and found[0].stripes == topic.stripes:
            self._opened[topic.topic_id, partition] = topic, config, found[2]
            return found[2]
        stripe = self._stripe_of(topic, partition)
        logs = PartitionLogs(
            partial(self._cluster.partition_log, topic, partition),
            config,
            merges=self._merges,
            cursors=self._cursors,
            max_uncompressed_bytes=self._config.socket_request_max_bytes * 4,
            resolve=resolver(self._cluster),
            partition=partition,
            stripe=None if stripe is None else stripe.stripe.reader,
        )
        if found is not None:  # its settings have changed
            opened = found[2]
            opened.logs.close()
            opened.logs = logs
            opened.use_stripe(stripe)
        else:
            opened = GatewayPartition(
                topic.name,
                topic.topic_id,
                partition,
                logs,
                run_blocking=self._run_blocking,
                run_short=self._run_short,
                budget=self._budget,
                clock_ms=self.now_ms,
                stripe=stripe,
            )
        self._opened[topic.topic_id, partition] = topic, config, opened
        return opened

    def _stripe_of(self, topic: TopicImage, partition: int) -> GatewayStripe | None:
        """Return the stripe of a partition, as it is with the topic's settings."""
        stripe = self._cluster.stripe_of(topic, partition)
        if stripe is None:
            return None
        key = topic.topic_id, stripe.directory.stripe
        found = self._stripes.get(key)
        if found is None:
            found = self._stripes[key] = GatewayStripe(
                topic.name,
                stripe,
                run_blocking=self._run_blocking,
                merges=self._merges,
                max_uncompressed_bytes=self._config.socket_request_max_bytes * 4,
                clock_ms=self.now_ms,
            )
        found.stripe = stripe
        return found
