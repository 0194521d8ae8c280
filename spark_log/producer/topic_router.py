"""Finds topics in the metadata log, and keeps what the producer knows of them up to date."""

from __future__ import annotations

import random
from collections.abc import Callable

from spark_log.clock import Clock
from spark_log.config import ProducerConfig
from spark_log.errors import KafkaTimeoutError, SparkLogError
from spark_log.metadata import Cluster, MetadataImage, TopicImage
from spark_log.producer.accumulator import Accumulator
from spark_log.producer.partitioner import Chooser
from spark_log.producer.topic_route import TopicRoute
from spark_log.storage.deadline import call_within


class TopicRouter:
    """Makes and renews the accumulator's routes. Safe to use from several threads."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        config: ProducerConfig,
        clock: Clock,
        *,
        new_chooser: Callable[[], Chooser],
        first_epoch: int,
        on_image: Callable[[MetadataImage], None],
    ) -> None:
        """Touches nothing.

        Args:
            cluster: the opened root.
            accumulator: has the routes.
            config: the producer's.
            clock: for ages.
            new_chooser: chooses partitions of one topic.
            first_epoch: of the producer, in each partition.
            on_image: is told of the metadata whenever they are looked at.
        """
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._clock = clock
        self._new_chooser = new_chooser
        self._first_epoch = first_epoch
        self._on_image = on_image

    def route(self, topic: str) -> TopicRoute:
        """Return a topic's route; look it up if that is not known, or not lately.

        That there is no such topic is known for certain when the metadata log says so (a Kafka
        client asks a broker that may be behind, or about to create it): nothing is waited for. A
        storage that does not answer is asked again up to ``max.block.ms``.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic; names those that look like it.
            KafkaTimeoutError: the storage does not answer.
        """
        route = self._accumulator.routes.get(topic)
        if route is not None and not self.is_old(route):
            return route
        began_ms = self._clock.monotonic_ms()
        tries = 0
        while True:
            try:
                return self._look_up(topic, self._clock.monotonic_ms() - began_ms)
            except SparkLogError as error:
                if not error.retriable:
                    raise
                tries += 1
                passed_ms = self._clock.monotonic_ms() - began_ms
                if passed_ms >= self._config.max_block_ms:
                    raise KafkaTimeoutError(
                        f"topic {topic!r} could not be looked up within max.block.ms "
                        f"({self._config.max_block_ms}): {error}"
                    ) from error
            pause_ms = min(
                self._config.retry_backoff_ms * 2.0 ** min(tries - 1, 40),
                self._config.retry_backoff_max_ms,
            )
            rest_ms = self._config.max_block_ms - passed_ms
            self._clock.sleep_ms(min(pause_ms * random.uniform(0.8, 1.2), rest_ms))

    def _look_up(self, topic: str, passed_ms: float) -> TopicRoute:
        """Look a topic up once, within what is left of ``max.block.ms``."""

        def look() -> TopicRoute:
            self.refresh(topic)
            found = self._accumulator.routes.get(topic)
            return found if found is not None else self._install(self._cluster.topic(topic))

        if self._cluster.store.is_mapped:
            return look()
        return call_within(
            max(0.0, self._config.max_block_ms - passed_ms),
            look,
            what=f"looking up topic {topic!r}",
            setting="max.block.ms",
        )

    def is_old(self, route: TopicRoute) -> bool:
        """Whether a route was looked up longer than ``metadata.max.age.ms`` ago."""
        age_ms = self._clock.monotonic_ms() - route.looked_up_ms
        return age_ms >= self._config.metadata_max_age_ms

    def refresh(self, topic: str) -> None:
        """Look up a topic that there is a route of; what waits for a deleted one moves or fails.

        Raises:
            StorageError: the metadata log cannot be read.
        """
        looked_up_ms = self._clock.monotonic_ms()
        image = self._cluster.image()
        self._on_image(image)
        found = image.find(topic)
        with self._accumulator.lock:
            route = self._accumulator.routes.get(topic)
            if route is None:
                return
            if found is None:
                route.is_gone = True
                del self._accumulator.routes[topic]
                for queue in route.queues:
                    self._accumulator.schedule(queue)
            elif found.topic_id == route.topic.topic_id:
                route.renew(found, looked_up_ms)
            else:
                self._accumulator.replace_route(self._new_route(found, looked_up_ms))

    def _install(self, topic: TopicImage) -> TopicRoute:
        looked_up_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            return self._accumulator.routes.setdefault(
                topic.name, self._new_route(topic, looked_up_ms)
            )

    def _new_route(self, topic: TopicImage, looked_up_ms: float) -> TopicRoute:
        return TopicRoute(
            topic, self._new_chooser(), looked_up_ms=looked_up_ms, epoch=self._first_epoch
        )
