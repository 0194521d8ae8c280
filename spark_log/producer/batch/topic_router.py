"""Looks topics up in the metadata log, and refreshes the producer's copy of their metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import KafkaTimeoutError, SparkLogError
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.producer.batch.accumulator import Accumulator
from spark_log.producer.batch.partitioner import TopicPartitioner
from spark_log.producer.batch.topic_route import TopicRoute
from spark_log.threads import call_within
from spark_log.util import retry_pause_ms

_log = logging.getLogger(__name__)


class TopicRouter:
    """Creates and updates the accumulator's routes. Safe to use from several threads."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        config: ProducerConfig,
        *,
        new_partitioner: Callable[[], TopicPartitioner],
        first_epoch: int,
        on_image: Callable[[MetadataImage], None],
    ) -> None:
        """Create a router; no metadata are read yet.

        `new_partitioner` makes the partitioner of one topic; `on_image` is called with the metadata
        image after every refresh.
        """
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._clock = cluster.clock
        self._new_partitioner = new_partitioner
        self._first_epoch = first_epoch
        self._on_image = on_image
        self._image: MetadataImage | None = None
        self._random = Random()

    def route(self, topic: str) -> TopicRoute:
        """Return a topic's route; look the topic up if it is unknown or its metadata are stale.

        Storage errors are retried up to ``max.block.ms``. A missing topic is not waited for: the
        metadata log is authoritative, unlike a Kafka broker, whose metadata may be outdated.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist; the message has similar names.
            KafkaTimeoutError: the storage did not answer within ``max.block.ms``.
        """
        route = self._accumulator.routes.get(topic)
        if route is not None and not self.is_stale(route):
            return route
        began_ms = self._clock.monotonic_ms()
        failures = 0
        while True:
            try:
                return self._look_up(topic, self._clock.monotonic_ms() - began_ms)
            except SparkLogError as error:
                if not error.retriable:
                    raise
                failures += 1
                self._wait(topic, failures, began_ms, error)

    def _wait(self, topic: str, failures: int, began_ms: float, error: SparkLogError) -> None:
        """Wait before a lookup is repeated.

        Raises:
            KafkaTimeoutError: ``max.block.ms`` is over.
        """
        left_ms = self._config.max_block_ms - (self._clock.monotonic_ms() - began_ms)
        pause_ms = retry_pause_ms(
            failures,
            initial_ms=self._config.retry_backoff_ms,
            max_ms=self._config.retry_backoff_max_ms,
            random=self._random,
        )
        if left_ms > 0:
            self._clock.sleep_ms(min(pause_ms, left_ms))
        if pause_ms >= left_ms:
            raise KafkaTimeoutError(
                f"topic {topic!r} could not be looked up within max.block.ms "
                f"({self._config.max_block_ms}): {error}"
            ) from error

    def _look_up(self, topic: str, passed_ms: float) -> TopicRoute:
        """Look a topic up once, in the rest of ``max.block.ms``."""

        def look_up() -> TopicRoute:
            image = self.refresh(topic)
            route = self._accumulator.routes.get(topic)
            return route if route is not None else self._install(image.topic(topic))

        if self._cluster.store.is_local:
            return look_up()
        return call_within(
            max(0.0, self._config.max_block_ms - passed_ms),
            look_up,
            what=f"looking up topic {topic!r}",
            setting="max.block.ms",
        )

    def is_stale(self, route: TopicRoute) -> bool:
        """Return whether a route's metadata is older than ``metadata.max.age.ms``."""
        age_ms = self._clock.monotonic_ms() - route.looked_up_ms
        return age_ms >= self._config.metadata_max_age_ms

    def refresh(self, topic: str) -> MetadataImage:
        """Read and return the metadata; update or replace the route of a topic, if it has one.

        The waiting batches of a deleted topic move to a new topic of the same name; without one
        they fail.

        Raises:
            StorageError: the metadata log cannot be read.
        """
        looked_up_ms = self._clock.monotonic_ms()
        image = self._cluster.image()
        self._on_image(image)
        found = image.find(topic)
        if found is None:
            _log.debug("%s: metadata refreshed: the topic does not exist", topic)
        else:
            _log.debug(
                "%s: metadata refreshed in %d ms: id %s, %d partitions",
                topic,
                self._clock.monotonic_ms() - looked_up_ms,
                found.topic_id,
                found.num_partitions,
            )
        with self._accumulator.lock:
            if image is not self._image:  # a new image is made only for a change
                self._image = image
                self._forget_deleted(image)
            route = self._accumulator.routes.get(topic)
            if route is None:
                return image
            if found is None:
                route.is_deleted = True
                del self._accumulator.routes[topic]
                for queue in route.queues:
                    self._accumulator.schedule(queue)
            elif found.topic_id == route.topic.topic_id:
                route.update(found, looked_up_ms)
            else:
                self._accumulator.replace_route(self._new_route(found, looked_up_ms))
        return image

    def _forget_deleted(self, image: MetadataImage) -> None:
        """Forget the routes of deleted topics that have no waiting batches and no running append.

        A producer that sends to ever new topics would otherwise keep the logs of all of them.
        """
        routes = self._accumulator.routes
        for route in list(routes.values()):
            if image.find_by_id(route.topic.topic_id) is None and route.is_idle:
                route.is_deleted = True
                del routes[route.topic.name]

    def _install(self, topic: TopicImage) -> TopicRoute:
        looked_up_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            return self._accumulator.routes.setdefault(
                topic.name, self._new_route(topic, looked_up_ms)
            )

    def _new_route(self, topic: TopicImage, looked_up_ms: float) -> TopicRoute:
        return TopicRoute(
            topic, self._new_partitioner(), looked_up_ms=looked_up_ms, epoch=self._first_epoch
        )
