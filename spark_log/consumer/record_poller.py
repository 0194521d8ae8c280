"""The loop behind `Consumer.poll`, `Consumer.poll_table` and iteration."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sized
from functools import partial

import pyarrow as pa

from spark_log.config import ConsumerConfig
from spark_log.consumer.consumer_metrics import ConsumerMetrics
from spark_log.consumer.fetch import Fetch, Fetcher
from spark_log.consumer.group import AutoCommit, ConsumerCoordinator
from spark_log.consumer.interceptors import ConsumerInterceptors, Records
from spark_log.consumer.position import FetchPositions, SubscriptionState, shown_positions
from spark_log.consumer.record_factory import RecordFactory, TableFactory
from spark_log.consumer.timed_calls import TimedCalls
from spark_log.errors import IllegalStateError, RecordDeserializationError
from spark_log.types import ConsumerRecord, TopicPartition
from spark_log.util import Clock, collector_paused

_log = logging.getLogger(__name__)


class RecordPoller:
    """Updates the assignment, takes fetched rows, and makes records of them.

    Positions move when records are returned, so that records that were not returned are fetched
    again.
    """

    def __init__(
        self,
        clock: Clock,
        config: ConsumerConfig,
        *,
        calls: TimedCalls,
        subscription: SubscriptionState,
        coordinator: ConsumerCoordinator,
        positions: FetchPositions,
        fetcher: Fetcher,
        auto_commit: AutoCommit,
        records: RecordFactory,
        interceptors: ConsumerInterceptors,
        metrics: ConsumerMetrics,
    ) -> None:
        """Connect the parts of one consumer."""
        self._clock = clock
        timeout_ms = config.consumer_timeout_ms
        self._iterator_timeout_ms = math.inf if timeout_ms < 0 else timeout_ms
        self._max_poll_records = config.max_poll_records
        self._calls = calls
        self._subscription = subscription
        self._coordinator = coordinator
        self._positions = positions
        self._fetcher = fetcher
        self._auto_commit = auto_commit
        self._records = records
        self._tables = TableFactory()
        self._interceptors = interceptors
        self._metrics = metrics
        self._iterator: _RecordIterator | None = None

    def poll(self, timeout_ms: float, max_records: int) -> Records:
        """Return records; an empty dict after ``timeout_ms``, or if only positions moved."""
        fetch = self._fetch(timeout_ms, max_records)
        records = self._make_records(fetch)
        self._positions.advance(fetch.positions)
        return records

    def poll_table(
        self, timeout_ms: float, max_records: int | None, *, leader_epochs: bool = False
    ) -> pa.Table:
        """Return rows as a table; an empty one after ``timeout_ms``, or if only positions moved."""
        fetch = self._fetch(timeout_ms, max_records)
        table = self._tables.table(fetch.rows, leader_epochs=leader_epochs)
        self._positions.advance(fetch.positions)
        self._record_returned(fetch, [table])
        return table

    def next_record(self) -> ConsumerRecord | None:
        """Return the next record and move the position behind it.

        Returns:
            None if there is no record for ``consumer.timeout.ms``.
        """
        while True:
            if self._iterator is not None:
                record = self._iterator.next(self._positions)
                if record is not None:
                    return record
                self._iterator = None
            fetch = self._fetch(self._iterator_timeout_ms, self._max_poll_records, until_rows=True)
            records = self._make_records(fetch)
            if not fetch.rows:
                return None
            self._iterator = _RecordIterator(records, fetch.positions)

    def discard_iterator(self) -> None:
        """Fetch again the records that `next_record` has not returned yet."""
        if self._iterator is not None:
            self._positions.rewind(self._iterator.partitions())
            self._iterator = None

    def _fetch(
        self, timeout_ms: float, max_records: int | None, *, until_rows: bool = False
    ) -> Fetch:
        """Return fetched rows, without moving the positions behind them.

        As in Kafka's ``Fetch.isEmpty``, a fetch without rows whose positions have moved is not
        empty: the caller may have waited for a position behind aborted records.

        Args:
            timeout_ms: the maximum time to wait.
            max_records: the maximum number of rows; None for all rows that are buffered.
            until_rows: whether to continue to wait for rows after positions have moved.
        """
        if self._subscription.is_empty:
            raise IllegalStateError(
                "the consumer reads nothing: call subscribe() or assign() before poll()"
            )
        self._metrics.record_poll()
        calls, coordinator = self._calls, self._coordinator
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if not calls.finish_until(deadline_ms):
            return Fetch([], {})
        self.discard_iterator()
        self._auto_commit.commit_if_due()
        while True:
            calls.check_wakeup()
            if not calls.run_until(coordinator.update, deadline_ms, coordinator.needs_update):
                return Fetch([], {})
            left_ms = deadline_ms - self._clock.monotonic_ms()
            wait_ms = min(max(0.0, left_ms), coordinator.next_update_ms())
            fetch = self._fetcher.collect_fetch(max_records, wait_ms)
            if fetch.rows or (fetch.positions and not until_rows):
                return fetch
            self._positions.advance(fetch.positions)  # behind batches without visible rows
            if fetch.failure is not None:
                recover = partial(coordinator.recover, *fetch.failure)
                if not calls.run_until(recover, deadline_ms):
                    return Fetch([], {})
            if left_ms <= 0:
                calls.check_wakeup()
                return Fetch([], {})

    def _make_records(self, fetch: Fetch) -> Records:
        """Return the records of fetched rows, after the interceptors have changed them.

        If a record cannot be deserialized, the records before it are returned and
        ``fetch.positions`` stops at it. If no record is before it, the error is raised.
        """
        records: Records = {}
        refused: dict[TopicPartition, RecordDeserializationError] = {}
        with collector_paused():  # to scan the records takes longer than to make them (ADR 34)
            for rows in fetch.rows:
                if rows.partition not in refused:
                    made, error = self._records.records(rows)
                    if error is not None:
                        refused[rows.partition] = error
                    if made:
                        records.setdefault(rows.partition, []).extend(made)
        for tp, error in refused.items():
            fetch.positions[tp] = error.offset
            self._fetcher.seek(tp, error.offset)
        if refused and not records:
            raise next(iter(refused.values()))
        self._record_returned(fetch, records.values())
        return self._interceptors.on_consume(records) if self._interceptors else records

    def _record_returned(self, fetch: Fetch, returned: Iterable[Sized]) -> None:
        """Count fetched rows, and log how many records are returned of them."""
        self._metrics.record_rows(fetch.rows)
        if fetch.rows and _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "poll returns %d records; the next offsets are %s",
                sum(map(len, returned)),
                shown_positions(fetch.positions),
            )


class _RecordIterator:
    """Returns the records of one poll one by one.

    Args:
        records: the records of the poll.
        next_offsets: partition → the position after all of its records.
    """

    def __init__(self, records: Records, next_offsets: Mapping[TopicPartition, int]) -> None:
        self._records = [(tp, record) for tp, found in records.items() for record in found]
        self._last_offsets = {tp: found[-1].offset for tp, found in records.items() if found}
        self._next_offsets = next_offsets
        self._index = 0

    def next(self, positions: FetchPositions) -> ConsumerRecord | None:
        """Return the next record and move the position past it; None after the last record."""
        if self._index >= len(self._records):
            # Also behind records that an interceptor removed.
            positions.advance(self._next_offsets)
            return None
        tp, record = self._records[self._index]
        self._index += 1
        is_last = record.offset == self._last_offsets[tp]
        positions.advance_to(tp, self._next_offsets[tp] if is_last else record.offset + 1)
        return record

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions whose positions may be before the fetched rows."""
        return set(self._next_offsets)
