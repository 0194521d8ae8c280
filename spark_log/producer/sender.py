"""The threads that append what was sent (Kafka's ``Sender``)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from spark_log.clock import Clock
from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidProducerEpochError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    SparkLogError,
    UnknownOutcomeError,
)
from spark_log.log.append.producer_state import sequence_after
from spark_log.metadata import MetadataImage
from spark_log.metadata.quotas import ClientQuota
from spark_log.producer.accumulator import Accumulator
from spark_log.producer.delivery import Delivery
from spark_log.producer.partition_appender import (
    Appended,
    DelayLoweredError,
    PartitionAppender,
    TopicGoneError,
    unknown_topic,
)
from spark_log.producer.producer_batch import NO_OFFSET, ProducerBatch
from spark_log.producer.producer_identity import ProducerIdentity
from spark_log.producer.producer_metrics import ProducerMetrics
from spark_log.producer.topic_route import PartitionQueue
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

_logger = logging.getLogger(__name__)

_JITTER: Final = 0.2
"""Pauses between tries vary by a fifth, so that not all come back at once (KIP-580)."""

_FILLED_SEGMENT: Final = 0.9
"""So much of ``segment.bytes`` are the records of an append at most; the rest is framing."""

_LEAST_LOOK_MS: Final = 1_000
"""So often, at most, a client that its quota holds back looks whether that was changed."""


class Sender:
    """Takes the partitions that are due, and appends what waits for each of them.

    Of one partition there is one append at a time, so that order is kept whatever fails. What is
    tried again goes before what came after it. An append whose outcome stays unknown until its
    time is over leaves no gap and doubles nothing: what follows it is of a newer producer epoch in
    that partition, by which the log refuses the old one from then on (KIP-360).

    A client that has a quota pauses after an append that was too much, as one whose channel a
    broker has muted (KIP-219): nothing of any partition is appended until then. What waits keeps
    its order, and its ``delivery.timeout.ms``.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        appender: PartitionAppender,
        identity: ProducerIdentity,
        config: ProducerConfig,
        clock: Clock,
        *,
        refresh: Callable[[str], None],
        on_end: Callable[[Sequence[ProducerBatch]], None],
        suppressed: SuppressedErrors = IN_PROCESS,
    ) -> None:
        """Touches nothing.

        Args:
            accumulator: what was sent.
            appender: does one try.
            identity: for idempotent appends.
            config: the producer's.
            clock: for retries and timeouts.
            refresh: looks a topic up in the metadata log again.
            on_end: is told of batches that have ended, in order; for interceptors.
            suppressed: counts what fails and is done without.
        """
        self.metrics = ProducerMetrics()
        self.fatal_error: Exception | None = None
        self._accumulator = accumulator
        self._appender = appender
        self._identity = identity
        self._config = config
        self._clock = clock
        self._refresh = refresh
        self._on_end = on_end
        self._suppressed = suppressed
        self._random = random.Random()
        self._quota = ClientQuota()
        self._quota_due_ms = 0.0

    def serve(self, queue: PartitionQueue) -> None:
        """Append what waits in a queue that was taken; then it may be taken again."""
        try:
            delivery = None if self._is_throttled() else self._delivery_of(queue)
            if delivery is None:
                with self._accumulator.lock:
                    self._accumulator.release(queue)
                return
            self._try(queue, delivery)
        except Exception as error:  # a fault of this program must not leave futures waiting
            _logger.exception("appending to %s-%d failed", queue.topic, queue.partition)
            with self._accumulator.lock:
                batches = self._accumulator.unfinished_of(queue)
                self._accumulator.seal(batches)
                if queue.delivery is not None:
                    queue.delivery.is_unknown = True
                    self._drop(queue, queue.delivery)
            self._fail(batches, error)
            with self._accumulator.lock:
                queue.log = None
                self._accumulator.release(queue)

    def fail_expired(self) -> None:
        """Let the batches fail whose ``delivery.timeout.ms`` is over, wherever they are."""
        with self._accumulator.lock:
            expired = self._accumulator.expired(self._clock.monotonic_ms())
            errors = [(batch, self._expiry_error(batch, queue)) for batch, queue in expired]
            self._accumulator.seal(batch for batch, _ in expired)
        for batch, error in errors:
            self._fail([batch], error)

    def fail_all(self, error: Exception) -> int:
        """Let everything fail that has not ended, and return how many records that were."""
        with self._accumulator.lock:
            batches = self._accumulator.unfinished()
            self._accumulator.seal(batches)
        return self._fail(batches, error)

    def keep_quota(self, image: MetadataImage) -> None:
        """Go by the quota that the metadata name, if that is another one."""
        found = self._appender.bytes_per_second(image)
        with self._accumulator.lock:
            if found != self._quota.bytes_per_second:
                self._quota.change(found)
                self._hold(self._clock.monotonic_ms())

    # --- one delivery ----------------------------------------------------------------------------

    def _delivery_of(self, queue: PartitionQueue) -> Delivery | None:
        """Return what is to be tried: the delivery that goes before, or all that waits."""
        with self._accumulator.lock:
            delivery = queue.delivery
            if delivery is not None and delivery.is_over:
                self._drop(queue, delivery)
                delivery = None
            if delivery is not None:
                delivery.leave_out_done()
                return delivery
            most_bytes = int(_FILLED_SEGMENT * queue.route.segment_bytes)
            most_bytes = min(most_bytes, self._quota.most_bytes)
            batches = self._accumulator.take_batches(queue, most_bytes)
            if not batches:
                return None
            queue.delivery = delivery = Delivery(batches)
        if self._config.acks == "0":
            for batch in batches:
                batch.acknowledge(NO_OFFSET)
        return delivery

    def _try(self, queue: PartitionQueue, delivery: Delivery) -> None:
        began_ms = self._clock.monotonic_ms()
        delivery.tries += 1
        try:
            if self.fatal_error is not None:
                raise self.fatal_error
            if queue.route.is_gone:
                raise TopicGoneError
            if self._identity.is_idempotent and not delivery.is_unknown:
                delivery.producer = self._identity.next_append(queue)
            appended = self._appender.append(queue, delivery, delivery.producer)
        except TopicGoneError:
            self._on_topic_gone(queue, delivery)
        except Exception as error:
            self._on_error(queue, delivery, error)
        else:
            self._on_success(queue, delivery, appended, began_ms)

    def _on_success(
        self, queue: PartitionQueue, delivery: Delivery, appended: Appended, began_ms: float
    ) -> None:
        if delivery.producer is not None and appended.info is not None:
            count = appended.info.last_offset - appended.info.base_offset + 1
            queue.epoch = delivery.producer.producer_epoch
            queue.sequence = sequence_after(delivery.producer.base_sequence, count)
        refused = sum(batch.refused_count for batch in delivery.batches if not batch.is_done)
        if appended.info is not None:
            records = delivery.acknowledge(appended.info, appended.stamps_us)
        else:
            records = 0
            for batch in delivery.batches:
                batch.fail(batch.refused()[0][1])
        now_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            throttle_ms = 0.0
            if appended.image is not None:
                self._quota.change(self._appender.bytes_per_second(appended.image))
                throttle_ms = self._quota.record(appended.size_bytes, now_ms)
                self._hold(now_ms)
            self.metrics.failed(refused)
            self.metrics.appended(
                now_ms,
                records=records,
                size_bytes=appended.size_bytes,
                batches=len(delivery.batches),
                latency_ms=now_ms - began_ms,
                queued_ms=began_ms - delivery.batches[0].created_ms,
                throttle_ms=throttle_ms,
            )
            queue.delivery = None
        self._end(delivery.batches)
        for batch in delivery.batches:
            batch.let_go()
        with self._accumulator.lock:
            self._accumulator.release(queue)

    def _on_error(self, queue: PartitionQueue, delivery: Delivery, error: Exception) -> None:
        delivery.error = error
        if isinstance(error, UnknownOutcomeError):
            delivery.is_unknown = True
        if isinstance(error, DelayLoweredError):
            with self._suppressed.suppress("metadata refresh", queue.topic, SparkLogError, OSError):
                self._refresh(queue.topic)
        if isinstance(error, OutOfOrderSequenceError) and not delivery.is_unknown:
            # The log has lost what came before, or forgot it. Nothing of this one is in it: it
            # may begin a new epoch (as `TransactionManager.requestIdempotentEpochBump` does).
            _logger.warning("%s; going on in a new producer epoch", error)
            self._identity.begin_epoch(queue)
        elif isinstance(error, InvalidProducerEpochError):
            self._on_fenced(error)
        elif not self._appender.may_pass(error):
            self._give_up(queue, delivery, error)
            return
        queue.log = None  # what it remembers may be of a root, or an answer, that was not real
        now_ms = self._clock.monotonic_ms()
        is_last = (
            self.fatal_error is not None
            or self._config.acks == "0"
            or delivery.tries > self._config.retries
        )
        if is_last or delivery.is_over:
            self._give_up(queue, delivery, self.fatal_error or error)
            return
        _logger.info(
            "%s-%d: try %d of an append failed: %s",
            queue.topic,
            queue.partition,
            delivery.tries,
            error,
        )
        with self._accumulator.lock:
            self.metrics.retried()
            delivery.due_ms = now_ms + self._backoff_ms(delivery.tries)
            self._accumulator.release(queue)

    def _give_up(self, queue: PartitionQueue, delivery: Delivery, error: Exception) -> None:
        queue.log = None
        if delivery.is_unknown and not isinstance(error, UnknownOutcomeError):
            error = _unknown(queue, error)
        self._fail(delivery.batches, error)
        for batch in delivery.batches:
            batch.let_go()
        with self._accumulator.lock:
            self._drop(queue, delivery)
            self._accumulator.release(queue)

    def _drop(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Try a delivery no more; if it may be in the log, what follows is of a new epoch."""
        queue.delivery = None
        if delivery.is_unknown and self._identity.is_idempotent:
            self._identity.begin_epoch(queue)

    def _on_topic_gone(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Hand over to the topic that has the name now, or fail if none has."""
        try:
            self._refresh(queue.topic)
        except Exception as error:
            self._on_error(queue, delivery, error)
            return
        with self._accumulator.lock:
            route = self._accumulator.routes.get(queue.topic)
            if route is not None and queue.partition < len(route.queues):
                self._accumulator.move(queue, delivery.batches)
                return
            batches = [*delivery.batches, *queue.batches()]
            self._accumulator.seal(batches)
        self._fail(batches, unknown_topic(queue.topic))
        with self._accumulator.lock:
            queue.delivery = None
            self._accumulator.release(queue)

    def _on_fenced(self, error: InvalidProducerEpochError) -> None:
        """Another producer has this one's identity, and is newer: there is nothing left to do."""
        with self._accumulator.lock:
            if self.fatal_error is None:
                self.fatal_error = error
        self.fail_all(error)

    # --- the client's quota ----------------------------------------------------------------------

    def _is_throttled(self) -> bool:
        """Whether the client has to wait; from time to time it looks whether its quota was changed.

        Who takes a queue does it, not who watches over the others: a storage may keep it waiting.
        """
        now_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            if not self._quota.is_throttled(now_ms):
                return False
            if now_ms < self._quota_due_ms:
                return True
            found = self._quota.bytes_per_second
        try:
            found = self._appender.bytes_per_second(self._appender.image())
        except (SparkLogError, OSError) as error:
            _logger.info("the quota cannot be looked at just now: %s", error)
        with self._accumulator.lock:
            self._quota.change(found)
            self._hold(now_ms)
            return self._quota.is_throttled(now_ms)

    def _hold(self, now_ms: float) -> None:
        """Let nothing be taken until the client may go on, or is to look at its quota again."""
        age_ms = max(self._config.metadata_max_age_ms, _LEAST_LOOK_MS)
        self._quota_due_ms = now_ms + age_ms
        self._accumulator.hold(min(self._quota.throttled_until_ms, self._quota_due_ms))

    # --- endings ---------------------------------------------------------------------------------

    def _fail(self, batches: Sequence[ProducerBatch], error: Exception) -> int:
        failed = [batch for batch in batches if batch.fail(error)]
        records = sum(batch.record_count for batch in failed)
        with self._accumulator.lock:
            self.metrics.failed(records)
        self._end(batches)
        return records

    def _end(self, batches: Sequence[ProducerBatch]) -> None:
        with self._accumulator.lock:
            ended = self._accumulator.claim(batches)
        self._on_end(ended)
        with self._accumulator.lock:
            self._accumulator.finish(ended)

    def _expiry_error(self, batch: ProducerBatch, queue: PartitionQueue) -> KafkaTimeoutError:
        delivery = queue.delivery
        if delivery is None or batch not in delivery.batches:
            became = "it was not appended: what came before it is not done"
        elif delivery.is_unknown or queue.is_busy:
            became = "whether it is in the log is not known: read the partition's end to see"
        else:
            became = "it was not appended"
        cause = f"; the last error was: {delivery.error}" if delivery and delivery.error else ""
        if self._quota.is_throttled(self._clock.monotonic_ms()):
            cause += (
                f"; the client may append {self._quota.bytes_per_second} bytes a second "
                f"(producer_byte_rate)"
            )
        return KafkaTimeoutError(
            f"{batch.topic}-{batch.partition}: a batch of {batch.record_count} records is not "
            f"acknowledged after delivery.timeout.ms ({self._config.delivery_timeout_ms}); "
            f"{became}{cause}"
        )

    def _backoff_ms(self, tries: int) -> float:
        grown = self._config.retry_backoff_ms * 2.0 ** min(tries - 1, 40)
        jitter = self._random.uniform(1 - _JITTER, 1 + _JITTER)
        return min(grown, self._config.retry_backoff_max_ms) * jitter


def _unknown(queue: PartitionQueue, error: Exception) -> UnknownOutcomeError:
    unknown = UnknownOutcomeError(
        f"{queue.topic}-{queue.partition}: an append may be in the log or not, and to try it again "
        f"failed: {error}"
    )
    unknown.__cause__ = error
    return unknown
