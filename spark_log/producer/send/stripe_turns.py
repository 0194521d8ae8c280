"""One attempt to append the batches of some partitions of a stripe, by one put."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidRecordError,
    LogTruncatedError,
    SparkLogError,
    UnknownOutcomeError,
)
from spark_log.log import (
    BatchAppend,
    LogAppendInfo,
    LogValidator,
    MergeExecutor,
    validated_batch,
)
from spark_log.log.stripe import Stripe, StripeEntry
from spark_log.producer.send.append_errors import TopicDeletedError
from spark_log.producer.send.topic_check import TopicCheck
from spark_log.producer.send.turn import AppendResult, Turn
from spark_log.record import NO_TIMESTAMP, sequence_after

_log = logging.getLogger(__name__)


class StripeTurns:
    """Makes attempts of appends to stripes; thread-safe, as `Stripe` is."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        topics: TopicCheck,
        merge_executor: MergeExecutor | None,
    ) -> None:
        """Open nothing yet.

        Args:
            cluster: the cluster of the topics.
            config: the producer's settings.
            topics: checks that topics exist.
            merge_executor: the thread on which appends take stripes home; None: they do not.
        """
        self._merge_executor = merge_executor
        self._cluster = cluster
        self._config = config
        self._topics = topics
        self._stripes: dict[tuple[str, int], Stripe] = {}

    def append(self, turns: Sequence[Turn]) -> None:
        """Append the batches of some partitions of one stripe, and set the outcome of each.

        Raises:
            TopicDeletedError: the topic was deleted.
            UnknownOutcomeError: all batches may be in the stripe or not.
            SparkLogError: no batch is in the stripe.
        """
        route = turns[0].queue.route
        topic = route.topic
        began_ms = self._cluster.clock.monotonic_ms()
        stripe = self._open(turns[0])
        validator = LogValidator(stripe.directory.config, self._cluster.clock)
        parts: list[tuple[Turn, list[StripeEntry]]] = []
        for turn in turns:
            try:
                entries = _accepted(turn, validator)
            except SparkLogError as error:
                turn.outcome = error
                continue
            if entries:
                parts.append((turn, entries))
            else:
                turn.outcome = AppendResult(None, (), 0)
        if not parts:
            return
        observed_ms = stripe.appends.observed_ms
        results = self._put(stripe, [entries for _, entries in parts])
        if self._merge_executor is not None:
            stripe.take_home_if_due(self._merge_executor)
        errors = [each for each in results if isinstance(each, SparkLogError)]
        if errors and self._topics.is_cause(topic, errors[0]):
            if isinstance(errors[0], LogTruncatedError):
                self._topics.remove_recreated_directory(topic)
            raise TopicDeletedError from errors[0]
        image = None
        if len(errors) < len(results):
            image = self._topics.after(
                topic, stripe.directory.config, where=stripe, end_observed_ms=observed_ms
            )
        for (turn, entries), result in zip(parts, results, strict=True):
            if isinstance(result, SparkLogError):
                turn.outcome = result
                continue
            info = result[0]
            if len(result) > 1:
                info = replace(info, last_offset=result[-1].last_offset)
            turn.queue.on_appended(info, turn.in_flight.producer, began_ms)
            times_us = tuple(
                None if each.append_time_us == NO_TIMESTAMP else each.append_time_us
                for each in result
            )
            size_bytes = sum(entry.size_bytes for entry in entries)
            turn.outcome = AppendResult(info, times_us, size_bytes, image)
        _log.debug(
            "%s: appended %d batches of %d partitions in %d ms",
            stripe.directory.path,
            sum(len(entries) for _, entries in parts),
            len(parts),
            self._cluster.clock.monotonic_ms() - began_ms,
        )

    def _put(
        self, stripe: Stripe, groups: Sequence[Sequence[StripeEntry]]
    ) -> Sequence[Sequence[LogAppendInfo] | SparkLogError]:
        try:
            return stripe.append_entries(groups, compression=self._config.compression_type)
        except SparkLogError:
            raise
        except Exception as error:  # a fault of the program, before the put or after it
            raise UnknownOutcomeError(
                f"{stripe.directory.path}: it is not known whether an append is in the stripe: "
                f"{error!r}",
                path=stripe.directory.path,
            ) from error

    def _open(self, turn: Turn) -> Stripe:
        """Return the stripe of a partition; after a change of the topic's configs, a new one."""
        topic = turn.queue.route.topic
        number = topic.stripe_of(turn.queue.partition)
        assert number is not None
        key = topic.topic_id, number
        found = self._stripes.get(key)
        if found is None or found.directory.config != topic.config():
            self._topics.before(topic)
            found = self._stripes[key] = self._cluster.stripe(topic, number)
        return found


def _accepted(turn: Turn, validator: LogValidator) -> list[StripeEntry]:
    """Return the entries of a partition's batches, without records that the topic refuses.

    Raises:
        InvalidRecordError: the topic does not accept the records, which an earlier attempt may have
            appended.
    """
    while True:
        try:
            return list(_entries(turn, validator))
        except _RefusedError:
            continue  # without the records that were refused


class _RefusedError(Exception):
    """Records were refused, and dropped from the batches in flight."""


def _entries(turn: Turn, validator: LogValidator) -> Iterator[StripeEntry]:
    in_flight, producer, records = turn.in_flight, turn.in_flight.producer, 0
    for encoded in in_flight.encoded():
        if producer is not None and records:
            sequence = sequence_after(producer.base_sequence, records)
            producer = replace(producer, base_sequence=sequence)
        batch = BatchAppend(encoded.records, producer)
        try:
            batch = validated_batch(batch, validator)
        except InvalidRecordError as error:
            # If it may be in the log, an earlier attempt has validated all its records.
            if in_flight.is_outcome_unknown or not in_flight.refuse(encoded, validator):
                raise
            _log.debug("%s: records are refused: %s", turn.queue, error)
            raise _RefusedError from error
        records = batch.record_count
        yield StripeEntry(turn.queue.partition, batch)
